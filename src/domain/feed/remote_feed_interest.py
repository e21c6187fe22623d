"""Which readings the feed clients of other instances want."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from domain.events.feed_model import FeedFilter
from domain.events.model import TELEMETRY, Event
from domain.feed.devices_with_subscribers_service import interests_by_account

MAX_DEVICES = 20
"""An account whose clients want more single devices is announced as a whole: the interest is repeated every second."""
SILENT_AFTER_MS = 5_000
"""An instance that has not been heard for so long is gone."""


@dataclass(frozen=True, slots=True)
class PeerFeedInterestMessage:
    """What the feed clients of one instance want; every change has a greater version."""

    version: int
    filters: Sequence[FeedFilter] = ()


def wanted_readings(filters: Iterable[FeedFilter]) -> list[FeedFilter]:
    """The filters that cover the readings that these want, few for each account and in a fixed order."""
    wanted = []
    for account_id, devices in interests_by_account(filters).items():
        is_whole = devices is None or len(devices) > MAX_DEVICES
        for device_id in [None] if is_whole else sorted(devices or ()):
            wanted.append(FeedFilter(account_id, frozenset({TELEMETRY}), device_id))
    return sorted(wanted, key=lambda each: (each.account_id, each.device_id or ""))


async def no_other_instances() -> None:
    """Confirms an interest where there is no cluster."""


class RemoteFeedInterest:
    """What the feed clients of the other instances want. Times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._by_instance: dict[str, tuple[PeerFeedInterestMessage, int]] = {}

    def update(self, instance: str, interest: PeerFeedInterestMessage, now_ms: int) -> bool:
        """Whether it has changed."""
        before = self._by_instance.get(instance)
        self._by_instance[instance] = (interest, now_ms)
        return before is None or before[0] != interest

    def forget_silent(self, now_ms: int) -> bool:
        """Whether an instance was forgotten."""
        gone = [instance for instance, (_, at_ms) in self._by_instance.items() if now_ms - at_ms >= SILENT_AFTER_MS]
        for instance in gone:
            del self._by_instance[instance]
        return bool(gone)

    def versions(self) -> dict[str, int]:
        return {instance: interest.version for instance, (interest, _) in self._by_instance.items()}

    def filters(self) -> list[FeedFilter]:
        return [one for interest, _ in self._by_instance.values() for one in interest.filters]

    def wants(self, event: Event) -> bool:
        return any(one.account_id == event.account_id and one.matches(event.kind, event.device_id) for one in self.filters())
