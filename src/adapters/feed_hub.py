"""The live feed inside one process: sends each committed event to all subscribers, encoded once.

The law: publishing never waits, and its memory is bounded. A client that keeps up gets each frame directly. A slower one has a
bounded queue of references to shared frames; when the queue overflows it is discarded, and the client reconnects with its cursor.
Access is checked twice: here, so that a key is not woken for devices it may not see, and again before sending, because a
grant may have been deleted in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

import msgspec

from domain.events.cursors import EventLogCursor
from domain.events.feed_model import FeedFilter, FeedFrame
from domain.events.model import Event, is_access_change
from domain.kernel.dataclasses import service
from domain.kernel.ids import AccountId, DeviceId

MAX_QUEUE_LENGTH = 10_000
"""References: at most 80 KB per client. One batch of telemetry may publish thousands of events before another task runs."""

MAX_OWN_POSITIONS = 10_000
"""Positions of own events that the log has not returned yet. Beyond this the set is cleared and they count as foreign."""
AUDIT_TYPE = "audit"

_encode_json = msgspec.json.Encoder().encode


@service
class QueuedFeedSubscription:
    """Implements `FeedSubscription`. Use it only on the event loop's thread."""

    filter: FeedFilter
    max_length: int
    overflowed: bool = field(default=False, init=False)
    closing: bool = field(default=False, init=False)
    access_stale: bool = field(default=True, init=False)
    allowed_devices: frozenset[DeviceId] | None = field(default=None, init=False)
    direct_sink: Callable[[FeedFrame], bool] | None = field(default=None, init=False)
    _frames: deque[FeedFrame] = field(default_factory=deque, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def put(self, frame: FeedFrame) -> None:
        if self.overflowed or self.closing or not self.filter.matches(frame.kind, frame.device_id):
            return
        if not self.access_stale:
            if self.allowed_devices is not None and frame.device_id not in self.allowed_devices:
                return
            if self.direct_sink is not None and not self._frames and self.direct_sink(frame):
                return
        if len(self._frames) >= self.max_length:
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

    def wake(self) -> None:
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


@service
class InProcessFeedHub:
    """Implements `FeedHub`. Calls `on_filters_changed` when a client subscribes, and when access changes."""

    on_filters_changed: Callable[[], None] = lambda: None
    published: int = field(default=0, init=False)
    dropped: int = field(default=0, init=False)
    life: str = field(default="", init=False)
    """Of the log from which the present frames come."""
    """Number of clients whose queue overflowed."""
    _max_queue_length: int = field(default=MAX_QUEUE_LENGTH, init=False)
    _subscriptions: dict[AccountId, set[QueuedFeedSubscription]] = field(default_factory=dict, init=False)
    _closing: bool = field(default=False, init=False)
    _store_time_s: int = field(default=0, init=False)

    @property
    def clients(self) -> int:
        return sum(len(subscriptions) for subscriptions in self._subscriptions.values())

    def publish(self, event: Event) -> None:
        """For the only process that writes to the log: events come in the order of their positions."""
        self.publish_logged(event, EventLogCursor(event.position) if event.position else None)

    def publish_logged(self, event: Event, log: EventLogCursor | None) -> None:
        """`log` covers this event and all that were published before it."""
        subscriptions = self._subscriptions.get(event.account_id)
        if event.is_public:
            self.published += 1
            if subscriptions:
                self._broadcast(_frame(event, event.payload, self._store_time_s, log), subscriptions)
            return
        self.apply_access_change(event)
        if subscriptions and any(subscription.filter.audit for subscription in subscriptions):
            self._broadcast(_frame(event, _audit_record(event), self._store_time_s, log), subscriptions)

    def apply_access_change(self, event: Event) -> None:
        """Have all clients of the account check their access before the next frame, if the event may have changed it."""
        if is_access_change(event.kind):
            self.mark_access_stale(event.account_id)
            self.on_filters_changed()

    def set_store_time(self, store_time_s: int) -> None:
        self._store_time_s = store_time_s

    def begin_life(self, life: str) -> None:
        """From now on the frames come from the log of this life: every client begins anew (`resync`)."""
        self.life, self._store_time_s = life, 0
        self.mark_all_access_stale()

    def _broadcast(self, frame: FeedFrame, subscriptions: set[QueuedFeedSubscription]) -> None:
        for subscription in subscriptions:
            before = subscription.overflowed
            subscription.put(frame)
            self.dropped += subscription.overflowed and not before

    def mark_access_stale(self, account_id: AccountId) -> None:
        for subscription in self._subscriptions.get(account_id, ()):
            subscription.mark_access_stale()

    def mark_all_access_stale(self) -> None:
        for account_id in self._subscriptions:
            self.mark_access_stale(account_id)

    def filters(self) -> Sequence[FeedFilter]:
        return [subscription.filter for subscription in self._list_subscriptions()]

    @contextmanager
    def subscribe(self, feed_filter: FeedFilter) -> Iterator[QueuedFeedSubscription]:
        subscription = QueuedFeedSubscription(filter=feed_filter, max_length=self._max_queue_length)
        if self._closing:
            subscription.close()
        self._subscriptions.setdefault(feed_filter.account_id, set()).add(subscription)
        self.on_filters_changed()
        try:
            yield subscription
        finally:
            subscriptions = self._subscriptions[feed_filter.account_id]
            subscriptions.discard(subscription)
            if not subscriptions:
                del self._subscriptions[feed_filter.account_id]

    def stop(self) -> None:
        """Close all subscriptions; new ones are closed at once."""
        self._closing = True
        for subscription in self._list_subscriptions():
            subscription.close()

    def close_reading_subscriptions(self) -> None:
        """Close the subscriptions whose clients want readings. They reconnect with their cursors."""
        for subscription in self._list_subscriptions():
            if subscription.filter.wants_readings:
                subscription.close()

    def _list_subscriptions(self) -> list[QueuedFeedSubscription]:
        return [subscription for subscriptions in self._subscriptions.values() for subscription in subscriptions]


def _frame(event: Event, payload: object, store_time_s: int, log: EventLogCursor | None) -> FeedFrame:
    """The frame with the encoded payload; the sender appends the cursor."""
    json = _encode_json(payload)[:-1]
    return FeedFrame(event.position, event.writer, event.kind, event.device_id, json, store_time_s, log)


def _audit_record(event: Event) -> dict[str, object]:
    """An event that is not public, as clients with `audit` get it: the record of the log without the address of the request."""
    return {
        "type": AUDIT_TYPE,
        "eventType": event.kind,
        "eventId": event.event_id,
        "accountId": event.account_id,
        "deviceId": event.device_id,
        "deviceName": event.device_name,
        "description": event.description,
        "source": event.source,
        "timestamp": event.at_ms,
    }


class LogOrderedFeedPublisher:
    """The `FeedPublisher` for several instances with one log: publishes logged events as the log returns them.

    A process sees its own commits in the order in which they return, which may differ from the log, and does not see other
    instances' commits. A change of access is applied at once, without waiting for the log.
    """

    def __init__(self, hub: InProcessFeedHub, wake: Callable[[], None]) -> None:
        """`wake` wakes the worker that reads the log and calls `publish_from_log`."""
        self.on_reading: Callable[[Event], None] = lambda _: None
        """Told of each reading after its commit; the other instances of a cluster hear of it."""
        self.on_store_time: Callable[[int], None] = lambda _: None
        self._hub = hub
        self._wake_follower = wake
        self._own_positions: set[int] = set()
        self._published = EventLogCursor()
        self.notify_instances: Callable[[], None] = lambda: None
        """Called after each commit of this process; tells the other instances that the log has grown."""

    def publish(self, event: Event) -> None:
        if not event.position:
            self._hub.publish(event)  # telemetry is not in the log
            self.on_reading(event)
            return
        self._hub.apply_access_change(event)
        if not self._published.covers(event.writer, event.position):
            if len(self._own_positions) >= MAX_OWN_POSITIONS:
                self._own_positions.clear()
            self._own_positions.add(event.position)
        self._wake_follower()
        self.notify_instances()

    def set_store_time(self, store_time_s: int) -> None:
        self._hub.set_store_time(store_time_s)
        self.on_store_time(store_time_s)

    def begin_life(self, life: str, log: EventLogCursor) -> None:
        """The log is another one, and has been read up to `log`."""
        self._own_positions.clear()
        self._published = log
        self._hub.begin_life(life)

    def publish_from_log(self, event: Event, log: EventLogCursor) -> bool:
        """The next event of the log; `log` covers it and all before. True when another instance wrote it."""
        self._published = log
        self._hub.publish_logged(event, log)
        if event.position in self._own_positions:
            self._own_positions.discard(event.position)
            return False
        return True
