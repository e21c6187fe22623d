"""What one feed client is sent: the state, what it missed, then whatever happens, each with the cursor to come back with.

No gap and no repetition: what is in the log up to the position of a snapshot or page is never taken from the queue, and what is
behind it was queued, because the queue was opened before the position was read. No peep beyond the grant: before each frame it is
asked whether access has changed since the last look, and if so what may be seen is read anew before another byte goes out.

While a client keeps up nothing is queued for it: whoever publishes hands the frame to `_direct`, which writes it at once. The
task sleeps until there is something that takes waiting: a client that is behind, a change of access, an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from adapters.http.feed.frame_writer import FeedSender, event_json
from adapters.http.feed.websocket import ClientGoneError, CloseReason
from domain.devices.model import Device
from domain.events.model import FeedFilter, FeedFrame
from domain.events.ports import FeedHub, FeedSubscription
from domain.feed.audience import AudienceService, FeedSnapshot, FeedVisibility, Viewer
from domain.kernel.clock import SECOND_MS, Clock, to_iso
from domain.kernel.cursors import EVENTS, encode_cursor
from domain.kernel.ids import DeviceId

CREDENTIALS_EXPIRED = 4001
ACCESS_REVOKED = 4003
CLIENT_TOO_SLOW = 4008
GOING_AWAY = 1001  # RFC 6455 7.4.1
SEND_TIMEOUT_S = 20.0
"""A client that takes nothing for that long while its socket's buffers are full is as slow as one whose queue runs over."""
VIEW_REFRESH_INTERVAL_S = 30.0
"""How often what a client may see is read anew though nobody said that it changed: another instance may have changed it."""

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class FeedIdentity:
    """`expires_ms` None: an API key, which does not expire by itself."""

    viewer: Viewer
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class FeedQuery:
    """What the client asked for. `after` is the position of its cursor; `lost` when its cursor cannot be read."""

    event_types: frozenset[str]
    device_id: DeviceId | None
    after_position: int | None
    cursor_invalid: bool


class _StreamEndedError(Exception):
    def __init__(self, over: CloseReason) -> None:
        super().__init__(over.reason)
        self.close_reason = over


class FeedStream:
    def __init__(
        self,
        audience: AudienceService,
        hub: FeedHub,
        clock: Clock,
        identity: FeedIdentity,
        interest: FeedFilter,
        terms: FeedQuery,
        outlet: FeedSender,
    ) -> None:
        self.identity = identity
        """Renewed in-band by whoever listens to the client."""
        self._audience = audience
        self._hub = hub
        self._clock = clock
        self._interest = interest
        self._query = terms
        self._sender = outlet
        self._subscription: FeedSubscription | None = None
        self._end_reason: CloseReason | BaseException | None = None
        self._position = 0
        self._view = FeedVisibility(frozenset(), 0)
        self._refresh_due_ms = 0

    async def run(self) -> CloseReason:
        try:
            after = self._query.after_position
            if after is not None:
                after = await self._resume_from(after)
            with self._hub.subscribe(self._interest) as subscription:
                self._subscription = subscription
                self._position = await (self._send_initial_state() if after is None else self._replay_missed(after))
                return await self._stream_live(subscription)
        except _StreamEndedError as ended:
            return ended.close_reason
        except ConnectionError:
            raise ClientGoneError from None

    def request_end(self, why: CloseReason | BaseException) -> None:
        """Whoever hears the client has an end to tell; an error is raised where the stream runs."""
        self._end_reason = why
        if self._subscription is not None:
            self._subscription.close()

    async def _send_initial_state(self) -> int:
        if self._query.cursor_invalid or self._query.after_position is not None:
            await self._send(b'{"type":"resync"}')
        snapshot = await self._load_snapshot()
        await self._send(initial_state_message(self._filter_devices(snapshot.devices), snapshot.position))
        return snapshot.position

    async def _resume_from(self, after: int) -> int | None:
        """The state, then the log behind `after`, before anything is queued; None when it no longer reaches back."""
        if (await self._audience.list_missed(self.identity.viewer, after)).events is None:
            return None
        snapshot = await self._load_snapshot()
        await self._send(initial_state_message(self._filter_devices(snapshot.devices), after))
        return await self._replay_missed(after)

    async def _replay_missed(self, after: int) -> int:
        while True:
            missed = await self._audience.list_missed(self.identity.viewer, after)
            await self._refresh_view()
            for event in missed.events or ():
                if self._interest.matches(event.kind, event.device_id) and self._can_see(event.device_id):
                    await self._send(event_json(_encode(event.payload)[:-1], event.position))
            after = missed.position
            if not missed.has_more:
                return after

    async def _stream_live(self, subscription: FeedSubscription) -> CloseReason:
        while True:
            for frame in subscription.drain():
                await self._check_access(subscription)
                if frame.position and frame.position <= self._position:
                    continue  # told already, by the snapshot or the log
                self._position = max(self._position, frame.position)
                if self._can_see(frame.device_id):
                    await self._send(event_json(frame.unclosed_json, self._position))
            await self._check_access(subscription)
            subscription.direct_sink = self._send_directly
            await subscription.wait(self._seconds_to_refresh())
            subscription.direct_sink = None

    def _send_directly(self, frame: FeedFrame) -> bool:
        """Called by whoever publishes, while nothing is queued and access has not changed. False: queue it, and wake us."""
        now_ms = self._clock.now_ms()
        expires_ms = self.identity.expires_ms
        if now_ms >= self._refresh_due_ms or (expires_ms is not None and now_ms >= expires_ms):
            return False
        if frame.position and frame.position <= self._position:
            return True
        position = max(self._position, frame.position)
        if not self._sender.try_send_event(frame, position):
            return False
        self._position = position
        return True

    async def _check_access(self, subscription: FeedSubscription) -> None:
        """Whether the connection may go on, and whether what may be seen must be read anew first."""
        self._raise_if_ended()
        if subscription.closing:
            raise _StreamEndedError(CloseReason(GOING_AWAY, "The service stops. Come back with your cursor."))
        if subscription.overflowed:
            raise _StreamEndedError(CloseReason(CLIENT_TOO_SLOW, "You read too slowly. Come back with your cursor."))
        now_ms = self._clock.now_ms()
        expires_ms = self.identity.expires_ms
        if expires_ms is not None and now_ms >= expires_ms:
            raise _StreamEndedError(
                CloseReason(CREDENTIALS_EXPIRED, "The access token has expired. Renew it in-band before it does.")
            )
        if subscription.access_stale or now_ms >= self._refresh_due_ms:
            subscription.access_stale = False
            subscription.allowed_devices = None  # queue everything while we look, and choose afterwards
            await self._refresh_view()
            subscription.allowed_devices = self._view.allowed_devices

    def _raise_if_ended(self) -> None:
        if isinstance(self._end_reason, CloseReason):
            raise _StreamEndedError(self._end_reason)
        if self._end_reason is not None:
            raise self._end_reason

    async def _refresh_view(self) -> None:
        view = await self._audience.get_visibility(self.identity.viewer)
        if view is None:
            raise _StreamEndedError(CloseReason(ACCESS_REVOKED, "The key or membership has been revoked or disabled."))
        self._set_view(view)

    async def _load_snapshot(self) -> FeedSnapshot:
        snapshot = await self._audience.snapshot(self.identity.viewer)
        if snapshot is None:
            raise _StreamEndedError(CloseReason(ACCESS_REVOKED, "The key or membership has been revoked or disabled."))
        self._set_view(snapshot.visibility)
        return snapshot

    def _set_view(self, view: FeedVisibility) -> None:
        self._view = view
        self._refresh_due_ms = min(view.valid_until_ms, self._clock.now_ms() + int(VIEW_REFRESH_INTERVAL_S * SECOND_MS))

    def _can_see(self, device_id: DeviceId | None) -> bool:
        return self._view.allowed_devices is None or device_id in self._view.allowed_devices

    def _filter_devices(self, devices: Iterable[Device]) -> list[Device]:
        return [device for device in devices if self._interest.device_id in (None, device.device_id)]

    def _seconds_to_refresh(self) -> float:
        until_ms = self._refresh_due_ms
        if self.identity.expires_ms is not None:
            until_ms = min(until_ms, self.identity.expires_ms)
        return max(0.001, (until_ms - self._clock.now_ms()) / SECOND_MS)

    async def _send(self, text: bytes) -> None:
        self._raise_if_ended()
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._sender.send_text(text)
        except TimeoutError:
            raise _StreamEndedError(CloseReason(CLIENT_TOO_SLOW, "You read too slowly. Come back with your cursor.")) from None


def initial_state_message(devices: Iterable[Device], position: int) -> bytes:
    shown = [
        {
            "deviceId": device.device_id,
            "name": device.name,
            "relay": None if device.relay is None else "ON" if device.relay else "OFF",
            "isOnline": device.is_online,
            "lastSeen": None if device.last_seen_ms is None else to_iso(device.last_seen_ms),
        }
        for device in devices
    ]
    return _encode({"type": "initial_state", "cursor": encode_cursor(EVENTS, position), "devices": shown})
