"""Notices that messages of another instance were lost, or that it is silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from domain.feed.feed_message_bus import PeerFeedReadingsMessage
from domain.feed.remote_feed_interest import SILENT_AFTER_MS


@dataclass(slots=True)
class _PeerReceiveState:
    sequence: int
    received_ms: int
    interest_seen: Mapping[str, int]


class FeedInstanceGapTracker:
    """The instances that send readings, and whether all that they sent has arrived. Times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._by_instance: dict[str, _PeerReceiveState] = {}

    def accept(self, instance: str, readings: PeerFeedReadingsMessage, now_ms: int) -> bool:
        """False if a message of this sender was lost before this one."""
        before = self._by_instance.get(instance)
        self._by_instance[instance] = _PeerReceiveState(readings.sequence, now_ms, readings.interest_seen)
        return before is None or readings.sequence == before.sequence + bool(readings.events)

    def forget_silent(self, now_ms: int) -> list[str]:
        """The senders that are gone: what they stored last may not have been sent."""
        gone = [instance for instance, sender in self._by_instance.items() if now_ms - sender.received_ms >= SILENT_AFTER_MS]
        for instance in gone:
            del self._by_instance[instance]
        return gone

    def unaware_of(self, instance: str, version: int) -> list[str]:
        """The senders that do not follow this version of the interest of `instance` yet."""
        return [sender for sender, last in self._by_instance.items() if last.interest_seen.get(instance, -1) < version]
