"""The stream of one feed client: the initial state, missed events and readings, then live events, each with a cursor.

No gap, and of the log no repetition: events that the cursor of a snapshot or page covers are skipped in the queue, and all
others are in it, because the subscription begins before that cursor is read. Missed readings are read once every batch that was
evaluated before the subscription is stored; so each is among them, or in the queue, or in both with the same id. No event beyond
the grants: before each frame the stream checks whether access has changed, and if so reloads what the client may see before it
sends anything else.

While a client keeps up, nothing is queued for it: the publisher calls `_send_directly`, which writes the frame at once. The task
sleeps until it has to wait for something: a slow client, a change of access, the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import msgspec

from adapters.http.feed.connection import FeedClientGoneError, FeedSender, WebSocketCloseFrame, event_json
from domain.devices.model import Device
from domain.events.cursors import EventLogCursor, FeedCursor
from domain.events.feed_model import FeedFilter, FeedFrame
from domain.events.ports import FeedHub, FeedSubscription
from domain.feed.interest import no_other_instances
from domain.feed.snapshot import FeedSnapshot, FeedSnapshotAndReplayService, FeedVisibility, Viewer
from domain.kernel.caller import ApiKeyCaller
from domain.kernel.clock import SECOND_MS, Clock, to_iso
from domain.kernel.dataclasses import service
from domain.kernel.ids import DeviceId
from domain.telemetry.replay import FeedReadingReplayService

CREDENTIALS_EXPIRED = 4001
ACCESS_REVOKED = 4003
CLIENT_TOO_SLOW = 4008
GOING_AWAY = 1001  # RFC 6455 7.4.1
_TOO_SLOW = "Client too slow. Reconnect with your cursor."
_REVOKED = "The key or membership has been revoked or disabled."
_RENEW_ADVICE = "The access token has expired. Send a new one in an auth message before it expires."
SEND_TIMEOUT_S = 20.0
"""A client that reads nothing for this long while its buffers are full is too slow, like one whose queue overflows."""
VIEW_REFRESH_INTERVAL_S = 30.0
"""How often a client's visibility is reloaded without a notification: another instance may have changed it."""

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class AuthenticatedFeedClient:
    """The authenticated viewer. `expires_ms` is None for an API key: its end is looked up again, since it may be moved."""

    viewer: Viewer
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class FeedQuery:
    """The query of the client. `cursor_invalid`: it has a cursor, which is unreadable.
    `audit`: also the events that are not public. `with_devices`: the initial state lists the devices."""

    event_types: frozenset[str]
    device_id: DeviceId | None
    cursor: FeedCursor | None
    cursor_invalid: bool
    audit: bool = False
    with_devices: bool = True


@dataclass(frozen=True, slots=True)
class FeedDependencies:
    """What a stream reads. Each batch of readings is evaluated and stored while `commit_lock` is held; entering it raises
    Unavailable if that takes too long. `confirm_interest` returns when the other instances of a cluster know what the clients
    of this one want."""

    audience: FeedSnapshotAndReplayService
    hub: FeedHub
    missed_readings: FeedReadingReplayService
    commit_lock: AbstractAsyncContextManager[None]
    confirm_interest: Callable[[], Awaitable[None]] = no_other_instances


class _OtherLifeError(Exception):
    """The log has become another one; the stream begins anew."""


class _FeedEndedError(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.close_reason = WebSocketCloseFrame(code, reason)


@service
class FeedStream:
    sources: FeedDependencies
    clock: Clock
    identity: AuthenticatedFeedClient
    """Replaced by the receiver when the client renews its credentials."""
    interest: FeedFilter
    query: FeedQuery
    sender: FeedSender
    _subscription: FeedSubscription | None = field(default=None, init=False)
    _end_reason: WebSocketCloseFrame | BaseException | None = field(default=None, init=False)
    _log: EventLogCursor = field(default_factory=EventLogCursor, init=False)
    _follows_hub: bool = field(default=False, init=False)
    _store_time_s: int = field(default=0, init=False)
    _life: str = field(default="", init=False)
    _view: FeedVisibility = field(default_factory=lambda: FeedVisibility(frozenset(), 0), init=False)
    _refresh_due_ms: int = field(default=0, init=False)
    """Monotonic."""

    async def run(self) -> WebSocketCloseFrame:
        try:
            after = self.query.cursor
            self._life = self.sources.hub.life
            resumed = after is not None and await self._resume_from(after)
            with self.sources.hub.subscribe(self.interest) as subscription:
                self._subscription = subscription
                resync = self.query.cursor_invalid or after is not None
                while True:
                    try:
                        if resumed:
                            await self._replay_missed()
                            await self._replay_readings(subscription)
                        else:
                            await self._send_initial_state(resync=resync)
                        return await self._stream_live(subscription)
                    except _OtherLifeError:
                        self._forget(subscription)
                        resumed, resync = False, True
        except _FeedEndedError as ended:
            return ended.close_reason
        except ConnectionError:
            raise FeedClientGoneError from None

    def request_end(self, reason: WebSocketCloseFrame | BaseException) -> None:
        """Called by the receiver to end the stream; `run` raises an exception or returns the close reason."""
        self._end_reason = reason
        if self._subscription is not None:
            self._subscription.close()

    def _forget(self, subscription: FeedSubscription) -> None:
        """What came from a log of another life."""
        self._life = self.sources.hub.life
        self._follows_hub = False
        subscription.direct_sink = None
        subscription.drain()

    async def _send_initial_state(self, *, resync: bool) -> None:
        if resync:
            await self._send(b'{"type":"resync"}')
        if self.interest.wants_readings:
            await self.sources.confirm_interest()
        self._store_time_s = await self.sources.missed_readings.store_time()
        snapshot = await self._load_snapshot()
        self._log = snapshot.log
        await self._send(self._initial_state_message(snapshot))

    async def _resume_from(self, cursor: FeedCursor) -> bool:
        """Send the state and the log after the cursor, before subscribing. False if it is of another life, if the log no longer
        reaches back that far, or if too many readings were missed."""
        if cursor.life != self._life:
            return False
        if (await self.sources.audience.list_missed(self.identity.viewer, cursor.log)).events is None:
            return False
        snapshot = await self._load_snapshot()
        readings = self.sources.missed_readings
        self._log = cursor.log
        self._store_time_s = await readings.store_time() if cursor.store_time_s is None else cursor.store_time_s
        if self.interest.wants_readings:
            replay = await readings.find(self.interest, self._view.allowed_devices, self._store_time_s)
            if replay is None or await readings.is_too_long(replay):
                return False
        await self._send(self._initial_state_message(snapshot))
        await self._replay_missed()
        return True

    async def _replay_missed(self) -> None:
        while True:
            missed = await self.sources.audience.list_missed(self.identity.viewer, self._log)
            await self._refresh_view()
            for event in missed.events or ():
                self._log = self._log.after([event])
                if self.interest.matches(event.kind, event.device_id) and self._can_see(event.device_id):
                    await self._send(event_json(_encode(event.payload)[:-1], self._log, self._store_time_s, self._life))
            self._log = missed.log
            if not missed.has_more:
                return

    async def _replay_readings(self, subscription: FeedSubscription) -> None:
        """Their cursor is that of the last event of the log: a client that leaves meanwhile gets all of them again."""
        if not self.interest.wants_readings:
            return
        async with self.sources.commit_lock:
            pass  # the batches that were evaluated before the subscription are stored
        await self.sources.confirm_interest()
        readings = self.sources.missed_readings
        replay = await readings.find(self.interest, self._view.allowed_devices, self._store_time_s)
        if replay is None:
            raise _FeedEndedError(CLIENT_TOO_SLOW, "Too many readings meanwhile. Reconnect with your cursor.")
        async for events in readings.list_events(replay):
            for event in events:
                await self._check_access(subscription)
                if self._can_see(event.device_id):
                    await self._send(event_json(_encode(event.payload)[:-1], self._log, self._store_time_s, self._life))
        self._store_time_s = replay.store_time_s

    async def _stream_live(self, subscription: FeedSubscription) -> WebSocketCloseFrame:
        while True:
            for frame in subscription.drain():
                await self._check_access(subscription)
                if frame.position and self._log.covers(frame.writer, frame.position):
                    continue  # sent already
                self._log = self._cursor_after(frame)
                self._store_time_s = max(self._store_time_s, frame.store_time_s)
                if self._can_see(frame.device_id):
                    await self._send(event_json(frame.unclosed_json, self._log, self._store_time_s, self._life))
            await self._check_access(subscription)
            subscription.direct_sink = self._send_directly
            await subscription.wait(self._seconds_to_refresh())
            subscription.direct_sink = None

    def _send_directly(self, frame: FeedFrame) -> bool:
        """Called by the publisher while nothing is queued and access is unchanged. False: queue the frame and wake the task."""
        if self._is_refresh_due() or self._is_expired() or self._life != self.sources.hub.life:
            return False
        if frame.position and self._log.covers(frame.writer, frame.position):
            return True
        log, store_time_s = self._cursor_after(frame), max(self._store_time_s, frame.store_time_s)
        if not self.sender.try_send_event(frame, log, store_time_s, self._life):
            return False
        self._log, self._store_time_s = log, store_time_s
        return True

    def _cursor_after(self, frame: FeedFrame) -> EventLogCursor:
        """The client's cursor once it has the frame. It has received, or may not see, all that the hub published before.
        `_follows_hub`: the hub has published all that the client has, so from then on both cursors are the same."""
        if frame.log is None or self._follows_hub:
            return frame.log or self._log
        log = self._log.union(frame.log)
        self._follows_hub = log == frame.log
        return log

    async def _check_access(self, subscription: FeedSubscription) -> None:
        """End the stream if it must end, and reload what the client may see if that may have changed."""
        self._raise_if_ended()
        if subscription.closing:
            raise _FeedEndedError(GOING_AWAY, "The service stops, or now holds the devices. Reconnect with your cursor.")
        if subscription.overflowed:
            raise _FeedEndedError(CLIENT_TOO_SLOW, _TOO_SLOW)
        if self._is_expired():
            raise _FeedEndedError(CREDENTIALS_EXPIRED, _RENEW_ADVICE)
        if self._life != self.sources.hub.life:
            raise _OtherLifeError
        if subscription.access_stale or self._is_refresh_due():
            subscription.access_stale = False
            subscription.allowed_devices = None  # queue all events meanwhile; filter them afterwards
            await self._refresh_view()
            subscription.allowed_devices = self._view.allowed_devices

    def _raise_if_ended(self) -> None:
        if isinstance(self._end_reason, WebSocketCloseFrame):
            raise _FeedEndedError(self._end_reason.code, self._end_reason.reason)
        if self._end_reason is not None:
            raise self._end_reason

    async def _refresh_view(self) -> None:
        view = await self.sources.audience.get_visibility(self.identity.viewer)
        if view is None:
            raise self._lost_access()
        self._set_visibility(view)

    async def _load_snapshot(self) -> FeedSnapshot:
        snapshot = await self.sources.audience.snapshot(self.identity.viewer, with_devices=self.query.with_devices)
        if snapshot is None:
            raise self._lost_access()
        self._set_visibility(snapshot.visibility)
        return snapshot

    def _lost_access(self) -> _FeedEndedError:
        viewer = self.identity.viewer
        if isinstance(viewer, ApiKeyCaller) and viewer.expires_ms is not None and self.clock.now_ms() >= viewer.expires_ms:
            return _FeedEndedError(CREDENTIALS_EXPIRED, "This API key has ended. Give it a later expiresAt, or use another one.")
        return _FeedEndedError(ACCESS_REVOKED, _REVOKED)

    def _set_visibility(self, view: FeedVisibility) -> None:
        self._view = view
        self._refresh_due_ms = self.clock.monotonic_ms() + int(VIEW_REFRESH_INTERVAL_S * SECOND_MS)

    def _is_refresh_due(self) -> bool:
        return self.clock.monotonic_ms() >= self._refresh_due_ms or self.clock.now_ms() >= self._view.valid_until_ms

    def _is_expired(self) -> bool:
        expires_ms = self.identity.expires_ms
        return expires_ms is not None and self.clock.now_ms() >= expires_ms

    def _can_see(self, device_id: DeviceId | None) -> bool:
        return self._view.allowed_devices is None or device_id in self._view.allowed_devices

    def _initial_state_message(self, snapshot: FeedSnapshot) -> bytes:
        """The first message of a feed: the state of the devices, and the cursor to resume from."""
        shown = [_shown_device(each) for each in snapshot.devices if self.interest.device_id in (None, each.device_id)]
        cursor = FeedCursor(self._log, self._store_time_s, self._life)
        return _encode({"type": "initial_state", "cursor": cursor.encode(), "devices": shown})

    def _seconds_to_refresh(self) -> float:
        until_ms = self._view.valid_until_ms
        if self.identity.expires_ms is not None:
            until_ms = min(until_ms, self.identity.expires_ms)
        left_ms = min(until_ms - self.clock.now_ms(), self._refresh_due_ms - self.clock.monotonic_ms())
        return max(0.001, left_ms / SECOND_MS)

    async def _send(self, text: bytes) -> None:
        self._raise_if_ended()
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self.sender.send_text(text)
        except TimeoutError:
            raise _FeedEndedError(CLIENT_TOO_SLOW, _TOO_SLOW) from None


def _shown_device(device: Device) -> dict[str, object]:
    shown: dict[str, object] = {
        "deviceId": device.device_id,
        "name": device.name,
        "relay": None if device.relay is None else "ON" if device.relay else "OFF",
        "isOnline": device.is_online,
        "lastSeen": None if device.last_seen_ms is None else to_iso(device.last_seen_ms),
    }
    if not device.has_one_relay:
        shown["channels"] = [
            {"channel": each.channel, "kind": each.kind.value, "name": each.name, "state": each.shown_state}
            for each in device.all_channels
        ]
    return shown
