"""Brings the readings that other instances store to the feed clients of this one, and its own readings to theirs.

The law: a feed client hears each reading once, or resumes from the stored ones. When a message of another instance was lost, or
the instance itself, this instance closes its clients of readings; they reconnect with their cursors and get what they missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field

import structlog

from adapters.feed_hub import InProcessFeedHub
from app.workers.due import DueLoop, WakeEvent
from domain.events.feed_model import FeedFilter
from domain.events.model import Event
from domain.feed.interest import (
    FeedInstanceGapTracker,
    FeedMessageBus,
    PeerFeedInterestMessage,
    PeerFeedReadingsMessage,
    RemoteFeedInterest,
    wanted_readings,
)
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service

HEARTBEAT_S = 1.0
CONFIRM_TIMEOUT_S = 2.0
EVENTS_PER_MESSAGE = 500
"""Some 150 KB; a message may have a megabyte."""
MAX_QUEUED_EVENTS = 20_000
"""More than these are dropped, and the clients of the other instances resume."""

log = structlog.get_logger("cluster_feed")


@service
class ClusterReadingFeedWorker(DueLoop):
    name = "cluster_feed"

    instance: str
    bus: FeedMessageBus
    hub: InProcessFeedHub
    clock: Clock
    interest_wake: WakeEvent
    """Makes the engine's interest be refreshed."""
    commit_lock: AbstractAsyncContextManager[object]
    """Held while a batch of readings is evaluated and stored."""
    wake_event: WakeEvent = field(default_factory=WakeEvent, init=False)
    gaps: int = field(default=0, init=False)
    """How often clients of readings were closed because something was lost."""

    _remote: RemoteFeedInterest = field(default_factory=RemoteFeedInterest, init=False)
    _senders: FeedInstanceGapTracker = field(default_factory=FeedInstanceGapTracker, init=False)
    _received: asyncio.Condition = field(default_factory=asyncio.Condition, init=False)
    _late: set[str] = field(default_factory=set, init=False)
    """Senders that did not confirm an interest in time."""
    _own: PeerFeedInterestMessage = field(default_factory=lambda: PeerFeedInterestMessage(0, []), init=False)
    _confirmed: dict[str, int] = field(default_factory=dict, init=False)
    _outgoing: deque[Event] = field(default_factory=deque, init=False)
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Messages are sent in the order of their numbers."""
    _sequence: int = field(default=0, init=False)
    _store_time_s: int = field(default=0, init=False)

    async def start(self, *, is_alone: bool = False) -> None:
        """Call before this instance takes over devices: afterwards it knows what the clients of the others want. `is_alone`: no
        other one has started yet."""
        await self.bus.on_interest(self._on_interest)
        await self.bus.on_readings(self._on_readings)
        await self.run_once()
        if not is_alone:
            await asyncio.sleep(HEARTBEAT_S * 1.5)

    def filters(self) -> Sequence[FeedFilter]:
        """What the feed clients of the other instances want."""
        return self._remote.filters()

    def publish(self, event: Event) -> None:
        """Call for each reading of this instance after its commit."""
        if not self._remote.wants(event):
            return
        if len(self._outgoing) >= MAX_QUEUED_EVENTS:
            self._outgoing.clear()
            self._sequence += 1  # the receivers notice
        self._outgoing.append(event)
        self.wake_event.set()

    def set_store_time(self, store_time_s: int) -> None:
        self._store_time_s = store_time_s

    async def confirm_interest(self) -> None:
        """Returns when every other instance follows what the clients of this one want now, and has stored what it evaluated
        before. One that does not answer in time makes the clients resume when it does."""
        await self._announce_interest()
        version = self._own.version
        try:
            async with asyncio.timeout(CONFIRM_TIMEOUT_S), self._received:
                await self._received.wait_for(lambda: not self._senders.unaware_of(self.instance, version))
        except TimeoutError:
            self._late.update(self._senders.unaware_of(self.instance, version))

    async def run_once(self) -> float:
        now_ms = self.clock.monotonic_ms()
        if self._remote.forget_silent(now_ms):
            self.interest_wake.set()
        if self._senders.forget_silent(now_ms):
            self._resume_clients("an instance is gone")
        versions = self._remote.versions()
        if versions != self._confirmed:
            async with self.commit_lock:
                self._confirmed = versions  # the batches that were evaluated without this interest are stored
        await self._announce_interest(repeat=True)
        await self._send()
        await self._announce_readings(())
        return HEARTBEAT_S

    def on_takeover(self) -> None:
        """Call before this instance stores readings of partitions whose owner is gone: what that stored last may not have been
        sent, so all clients of readings resume, here and at the other instances."""
        self._resume_clients("partitions were taken over")
        self._sequence += 1  # the receivers notice
        self.wake_event.set()

    async def flush(self) -> None:
        """Call before another instance may store the next readings of a device: clients hear them in their order."""
        await self._send()
        await self.bus.flush()

    async def _send(self) -> None:
        async with self._sending:
            while self._outgoing:
                events = [self._outgoing.popleft() for _ in range(min(EVENTS_PER_MESSAGE, len(self._outgoing)))]
                self._sequence += 1
                await self._announce_readings(events)

    async def _announce_interest(self, *, repeat: bool = False) -> None:
        wanted = wanted_readings(self.hub.filters())
        has_changed = wanted != self._own.filters
        if has_changed:
            self._own = PeerFeedInterestMessage(self._own.version + 1, wanted)
        if has_changed or repeat:
            await self.bus.announce_interest(self._own)

    async def _announce_readings(self, events: Sequence[Event]) -> None:
        await self.bus.announce_readings(PeerFeedReadingsMessage(self._sequence, self._store_time_s, events, self._confirmed))

    def _on_interest(self, sender: str, interest: PeerFeedInterestMessage) -> None:
        if self._remote.update(sender, interest, self.clock.monotonic_ms()):
            self.interest_wake.set()
            self.wake_event.set()

    async def _on_readings(self, sender: str, readings: PeerFeedReadingsMessage) -> None:
        if not self._senders.accept(sender, readings, self.clock.monotonic_ms()):
            self._resume_clients("a message was lost, or partitions were taken over")
        if readings.events:
            self.hub.set_store_time(readings.store_time_s)
        for event in readings.events:
            self.hub.publish(event)
        if sender in self._late and sender not in self._senders.unaware_of(self.instance, self._own.version):
            self._late.discard(sender)
            self._resume_clients("an instance has learned late what clients want")
        async with self._received:
            self._received.notify_all()

    def _resume_clients(self, reason: str) -> None:
        self.gaps += 1
        log.warning("clients of the feed resume their readings", reason=reason)
        self.hub.close_reading_subscriptions()
