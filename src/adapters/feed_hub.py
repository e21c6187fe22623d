"""The live feed inside one process: what was committed goes to whoever listens, encoded once however many they are.

The law: publishing never waits and never grows. A client that keeps up is handed each frame on the spot. One that does not has a
bounded queue of references to shared frames; when that runs over, it is thrown away and the client told to come back with its
cursor. What a client may see is decided twice: here, so that a key is not woken for what is none of its business, and again by
whoever sends, because in between a grant may have gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from domain.events.model import Event, FeedFilter, FeedFrame
from domain.events.policy import is_access_change
from domain.kernel.ids import AccountId, DeviceId

MAX_QUEUE_LENGTH = 10_000
"""References, so 80 KB at the most a client. One batch of telemetry may publish some thousand events before anybody can run."""

_encode_json = msgspec.json.Encoder().encode


def encode_frame(event: Event) -> FeedFrame:
    """Encoded as the payload; the cursor is put behind it by whoever sends."""
    return FeedFrame(event.position, event.kind, event.device_id, _encode_json(event.payload)[:-1])


class QueuedFeedSubscription:
    """See the port `Subscription`. All on the event loop's thread."""

    def __init__(self, interest: FeedFilter, length: int) -> None:
        self.filter = interest
        self.overflowed = False
        self.closing = False
        self.access_stale = True
        self.allowed_devices: frozenset[DeviceId] | None = None
        self.direct_sink: Callable[[FeedFrame], bool] | None = None
        self._max_length = length
        self._frames: deque[FeedFrame] = deque()
        self._wake = asyncio.Event()

    def put(self, frame: FeedFrame) -> None:
        if self.overflowed or not self.filter.matches(frame.kind, frame.device_id):
            return
        if not self.access_stale:
            if self.allowed_devices is not None and frame.device_id not in self.allowed_devices:
                return
            if self.direct_sink is not None and not self._frames and not self.closing and self.direct_sink(frame):
                return
        if len(self._frames) >= self._max_length:
            self.overflowed = True
            self._frames.clear()
        else:
            self._frames.append(frame)
        self._wake.set()

    def mark_access_stale(self) -> None:
        self.access_stale = True
        self._wake.set()

    def close(self) -> None:
        self.closing = True
        self._wake.set()

    def drain(self) -> Sequence[FeedFrame]:
        frames = tuple(self._frames)
        self._frames.clear()
        return frames

    async def wait(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()


MAX_OWN_POSITIONS = 10_000
"""Positions of own events the log has not shown yet. More than that are forgotten: then they count as others'."""


class InProcessFeedHub:
    """See the ports `Feed` and `FeedHub`. `on_interest` is called whenever somebody begins or ceases to look."""

    def __init__(self, *, queue_length: int = MAX_QUEUE_LENGTH, on_interest: Callable[[], None] = lambda: None) -> None:
        self._max_queue_length = queue_length
        self._on_filters_changed = on_interest
        self._subscriptions: dict[AccountId, set[QueuedFeedSubscription]] = {}
        self._closing = False
        self.published = 0
        self.dropped = 0
        """Clients that did not keep up."""

    @property
    def clients(self) -> int:
        return sum(len(listening) for listening in self._subscriptions.values())

    def publish(self, event: Event) -> None:
        listening = self._subscriptions.get(event.account_id)
        if event.is_public:
            self.published += 1
            if listening:
                self._broadcast(encode_frame(event), listening)
        elif is_access_change(event.kind):
            self.mark_access_stale(event.account_id)
            self._on_filters_changed()

    def _broadcast(self, frame: FeedFrame, listening: set[QueuedFeedSubscription]) -> None:
        for subscription in listening:
            before = subscription.overflowed
            subscription.put(frame)
            self.dropped += subscription.overflowed and not before

    def mark_access_stale(self, account_id: AccountId) -> None:
        for subscription in self._subscriptions.get(account_id, ()):
            subscription.mark_access_stale()

    def filters(self) -> Sequence[FeedFilter]:
        return [subscription.filter for listening in self._subscriptions.values() for subscription in listening]

    @contextmanager
    def subscribe(self, interest: FeedFilter) -> Iterator[QueuedFeedSubscription]:
        subscription = QueuedFeedSubscription(interest, self._max_queue_length)
        if self._closing:
            subscription.close()
        self._subscriptions.setdefault(interest.account_id, set()).add(subscription)
        self._on_filters_changed()
        try:
            yield subscription
        finally:
            listening = self._subscriptions[interest.account_id]
            listening.discard(subscription)
            if not listening:
                del self._subscriptions[interest.account_id]
            self._on_filters_changed()

    def stop(self) -> None:
        """Ask every client's handler to end; new ones end at once."""
        self._closing = True
        for listening in self._subscriptions.values():
            for subscription in listening:
                subscription.close()


class LogOrderedFeedPublisher:
    """The `Feed` where several instances write to one log: what is logged goes to the clients as the log shows it, in its order.

    This process would hear of its own commits in the order in which their answers happen to arrive, which is not always that of
    the log; and of others' not at all. A change of access counts at once, though: nobody waits for the log to show a revocation.
    """

    def __init__(self, hub: InProcessFeedHub, bell: Callable[[], None]) -> None:
        """`bell` wakes whoever reads the log and calls `tell`."""
        self._hub = hub
        self._wake_follower = bell
        self._own_positions: set[int] = set()
        self._last_position = 0

    def publish(self, event: Event) -> None:
        if not event.position:
            self._hub.publish(event)  # telemetry, which is in no log
            return
        if is_access_change(event.kind):
            self._hub.publish(event)
        if event.position > self._last_position:
            if len(self._own_positions) >= MAX_OWN_POSITIONS:
                self._own_positions.clear()
            self._own_positions.add(event.position)
        self._wake_follower()

    def publish_from_log(self, event: Event) -> bool:
        """The next event of the log. True when another instance wrote it."""
        self._last_position = event.position
        self._hub.publish(event)
        if event.position in self._own_positions:
            self._own_positions.discard(event.position)
            return False
        return True
