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

from domain.events.model import Event, Frame, Interest
from domain.events.policy import changes_access
from domain.kernel.ids import AccountId, DeviceId

QUEUE_LENGTH = 10_000
"""References, so 80 KB at the most a client. One batch of telemetry may publish some thousand events before anybody can run."""

_encode = msgspec.json.Encoder().encode


def frame_of(event: Event) -> Frame:
    """Encoded as the payload; the cursor is put behind it by whoever sends."""
    return Frame(event.position, event.kind, event.device_id, _encode(event.payload)[:-1])


class HubSubscription:
    """See the port `Subscription`. All on the event loop's thread."""

    def __init__(self, interest: Interest, length: int) -> None:
        self.interest = interest
        self.lost = False
        self.closing = False
        self.stale = True
        self.allowed: frozenset[DeviceId] | None = None
        self.direct: Callable[[Frame], bool] | None = None
        self._length = length
        self._frames: deque[Frame] = deque()
        self._wake = asyncio.Event()

    def put(self, frame: Frame) -> None:
        if self.lost or not self.interest.wants(frame.kind, frame.device_id):
            return
        if not self.stale:
            if self.allowed is not None and frame.device_id not in self.allowed:
                return
            if self.direct is not None and not self._frames and not self.closing and self.direct(frame):
                return
        if len(self._frames) >= self._length:
            self.lost = True
            self._frames.clear()
        else:
            self._frames.append(frame)
        self._wake.set()

    def mark_stale(self) -> None:
        self.stale = True
        self._wake.set()

    def close(self) -> None:
        self.closing = True
        self._wake.set()

    def take(self) -> Sequence[Frame]:
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


OWN = 10_000
"""Positions of own events the log has not shown yet. More than that are forgotten: then they count as others'."""


class InProcessFeed:
    """See the ports `Feed` and `FeedHub`. `on_interest` is called whenever somebody begins or ceases to look."""

    def __init__(self, *, queue_length: int = QUEUE_LENGTH, on_interest: Callable[[], None] = lambda: None) -> None:
        self._queue_length = queue_length
        self._on_interest = on_interest
        self._open: dict[AccountId, set[HubSubscription]] = {}
        self._closing = False
        self.published = 0
        self.dropped = 0
        """Clients that did not keep up."""

    @property
    def clients(self) -> int:
        return sum(len(listening) for listening in self._open.values())

    def publish(self, event: Event) -> None:
        listening = self._open.get(event.account_id)
        if event.is_public:
            self.published += 1
            if listening:
                self._spread(frame_of(event), listening)
        elif changes_access(event.kind):
            self.recheck(event.account_id)
            self._on_interest()

    def _spread(self, frame: Frame, listening: set[HubSubscription]) -> None:
        for subscription in listening:
            before = subscription.lost
            subscription.put(frame)
            self.dropped += subscription.lost and not before

    def recheck(self, account_id: AccountId) -> None:
        for subscription in self._open.get(account_id, ()):
            subscription.mark_stale()

    def interests(self) -> Sequence[Interest]:
        return [subscription.interest for listening in self._open.values() for subscription in listening]

    @contextmanager
    def subscribe(self, interest: Interest) -> Iterator[HubSubscription]:
        subscription = HubSubscription(interest, self._queue_length)
        if self._closing:
            subscription.close()
        self._open.setdefault(interest.account_id, set()).add(subscription)
        self._on_interest()
        try:
            yield subscription
        finally:
            listening = self._open[interest.account_id]
            listening.discard(subscription)
            if not listening:
                del self._open[interest.account_id]
            self._on_interest()

    def stop(self) -> None:
        """Ask every client's handler to end; new ones end at once."""
        self._closing = True
        for listening in self._open.values():
            for subscription in listening:
                subscription.close()


class FollowedFeed:
    """The `Feed` where several instances write to one log: what is logged goes to the clients as the log shows it, in its order.

    This process would hear of its own commits in the order in which their answers happen to arrive, which is not always that of
    the log; and of others' not at all. A change of access counts at once, though: nobody waits for the log to show a revocation.
    """

    def __init__(self, hub: InProcessFeed, bell: Callable[[], None]) -> None:
        """`bell` wakes whoever reads the log and calls `tell`."""
        self._hub = hub
        self._bell = bell
        self._own: set[int] = set()
        self._told = 0

    def publish(self, event: Event) -> None:
        if not event.position:
            self._hub.publish(event)  # telemetry, which is in no log
            return
        if changes_access(event.kind):
            self._hub.publish(event)
        if event.position > self._told:
            if len(self._own) >= OWN:
                self._own.clear()
            self._own.add(event.position)
        self._bell()

    def tell(self, event: Event) -> bool:
        """The next event of the log. True when another instance wrote it."""
        self._told = event.position
        self._hub.publish(event)
        if event.position in self._own:
            self._own.discard(event.position)
            return False
        return True
