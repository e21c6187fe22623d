"""The port by which instances of a cluster tell each other what their feed clients want, and which readings they have stored.

The messages between instances are quick and may be lost. Readings are not lost with them: each sender numbers its messages, so a
receiver notices a gap, and its clients resume from the stored readings. The law: whoever was confirmed to follow an interest has
stored what it evaluated without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from domain.events.model import Event
from domain.feed.remote_feed_interest import PeerFeedInterestMessage


@dataclass(frozen=True, slots=True)
class PeerFeedReadingsMessage:
    """Readings of one instance. `sequence` counts its messages that have events; one without events repeats the last number."""

    sequence: int
    store_time_s: int
    events: Sequence[Event] = ()
    interest_seen: Mapping[str, int] = field(default_factory=dict)
    """Instance → version of its interest that the sender follows."""


class FeedMessageBus(Protocol):
    """Messages to all other instances. The callbacks take the sender, and run on the event loop."""

    async def announce_readings(self, readings: PeerFeedReadingsMessage) -> None: ...

    async def on_readings(self, call: Callable[[str, PeerFeedReadingsMessage], Awaitable[None] | None]) -> None: ...

    async def announce_interest(self, interest: PeerFeedInterestMessage) -> None: ...

    async def flush(self) -> None:
        """Returns when what was announced is on its way."""

    async def on_interest(self, call: Callable[[str, PeerFeedInterestMessage], Awaitable[None] | None]) -> None: ...
