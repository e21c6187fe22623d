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

from adapters.http.feed_outlet import Outlet, said
from adapters.http.feed_talk import Gone, Over
from domain.devices.model import Device
from domain.events.model import Frame, Interest
from domain.events.policy import encode_cursor
from domain.events.ports import FeedHub, Subscription
from domain.kernel.clock import SECOND_MS, Clock, iso
from domain.kernel.ids import DeviceId
from domain.webhooks.audience import AudienceService, Snapshot, View, Viewer

EXPIRED = 4001
REVOKED = 4003
TOO_SLOW = 4008
GOING_AWAY = 1001  # RFC 6455 7.4.1
SEND_WITHIN_S = 20.0
"""A client that takes nothing for that long while its socket's buffers are full is as slow as one whose queue runs over."""
LOOK_AGAIN_S = 30.0
"""How often what a client may see is read anew though nobody said that it changed: another instance may have changed it."""

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Identity:
    """`expires_ms` None: an API key, which does not expire by itself."""

    viewer: Viewer
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class Terms:
    """What the client asked for. `after` is the position of its cursor; `lost` when its cursor cannot be read."""

    kinds: frozenset[str]
    device_id: DeviceId | None
    after: int | None
    lost: bool


class _Ended(Exception):
    def __init__(self, over: Over) -> None:
        super().__init__(over.reason)
        self.over = over


class FeedStream:
    def __init__(
        self,
        audience: AudienceService,
        hub: FeedHub,
        clock: Clock,
        identity: Identity,
        interest: Interest,
        terms: Terms,
        outlet: Outlet,
    ) -> None:
        self.identity = identity
        """Renewed in-band by whoever listens to the client."""
        self._audience = audience
        self._hub = hub
        self._clock = clock
        self._interest = interest
        self._terms = terms
        self._outlet = outlet
        self._subscription: Subscription | None = None
        self._ended: Over | BaseException | None = None
        self._position = 0
        self._view = View(frozenset(), 0)
        self._look_ms = 0

    async def run(self) -> Over:
        try:
            after = self._terms.after
            if after is not None:
                after = await self._resume(after)
            with self._hub.subscribe(self._interest) as subscription:
                self._subscription = subscription
                self._position = await (self._begin() if after is None else self._catch_up(after))
                return await self._follow(subscription)
        except _Ended as ended:
            return ended.over
        except ConnectionError:
            raise Gone from None

    def end(self, why: Over | BaseException) -> None:
        """Whoever hears the client has an end to tell; an error is raised where the stream runs."""
        self._ended = why
        if self._subscription is not None:
            self._subscription.close()

    async def _begin(self) -> int:
        if self._terms.lost or self._terms.after is not None:
            await self._say(b'{"type":"resync"}')
        snapshot = await self._snapshot()
        await self._say(initial_state(self._shown(snapshot.devices), snapshot.position))
        return snapshot.position

    async def _resume(self, after: int) -> int | None:
        """The state, then the log behind `after`, before anything is queued; None when it no longer reaches back."""
        if (await self._audience.missed(self.identity.viewer, after)).events is None:
            return None
        snapshot = await self._snapshot()
        await self._say(initial_state(self._shown(snapshot.devices), after))
        return await self._catch_up(after)

    async def _catch_up(self, after: int) -> int:
        while True:
            missed = await self._audience.missed(self.identity.viewer, after)
            await self._look()
            for event in missed.events or ():
                if self._interest.wants(event.kind, event.device_id) and self._may_see(event.device_id):
                    await self._say(said(_encode(event.payload)[:-1], event.position))
            after = missed.position
            if not missed.more:
                return after

    async def _follow(self, subscription: Subscription) -> Over:
        while True:
            for frame in subscription.take():
                await self._check(subscription)
                if frame.position and frame.position <= self._position:
                    continue  # told already, by the snapshot or the log
                self._position = max(self._position, frame.position)
                if self._may_see(frame.device_id):
                    await self._say(said(frame.head, self._position))
            await self._check(subscription)
            subscription.direct = self._direct
            await subscription.wait(self._wait_s())
            subscription.direct = None

    def _direct(self, frame: Frame) -> bool:
        """Called by whoever publishes, while nothing is queued and access has not changed. False: queue it, and wake us."""
        now_ms = self._clock.now_ms()
        expires_ms = self.identity.expires_ms
        if now_ms >= self._look_ms or (expires_ms is not None and now_ms >= expires_ms):
            return False
        if frame.position and frame.position <= self._position:
            return True
        position = max(self._position, frame.position)
        if not self._outlet.put(frame, position):
            return False
        self._position = position
        return True

    async def _check(self, subscription: Subscription) -> None:
        """Whether the connection may go on, and whether what may be seen must be read anew first."""
        self._raise_end()
        if subscription.closing:
            raise _Ended(Over(GOING_AWAY, "The service stops. Come back with your cursor."))
        if subscription.lost:
            raise _Ended(Over(TOO_SLOW, "You read too slowly. Come back with your cursor."))
        now_ms = self._clock.now_ms()
        expires_ms = self.identity.expires_ms
        if expires_ms is not None and now_ms >= expires_ms:
            raise _Ended(Over(EXPIRED, "The access token has expired. Renew it in-band before it does."))
        if subscription.stale or now_ms >= self._look_ms:
            subscription.stale = False
            subscription.allowed = None  # queue everything while we look, and choose afterwards
            await self._look()
            subscription.allowed = self._view.allowed

    def _raise_end(self) -> None:
        if isinstance(self._ended, Over):
            raise _Ended(self._ended)
        if self._ended is not None:
            raise self._ended

    async def _look(self) -> None:
        view = await self._audience.view(self.identity.viewer)
        if view is None:
            raise _Ended(Over(REVOKED, "The key or membership has been revoked or disabled."))
        self._adopt(view)

    async def _snapshot(self) -> Snapshot:
        snapshot = await self._audience.snapshot(self.identity.viewer)
        if snapshot is None:
            raise _Ended(Over(REVOKED, "The key or membership has been revoked or disabled."))
        self._adopt(snapshot.view)
        return snapshot

    def _adopt(self, view: View) -> None:
        self._view = view
        self._look_ms = min(view.until_ms, self._clock.now_ms() + int(LOOK_AGAIN_S * SECOND_MS))

    def _may_see(self, device_id: DeviceId | None) -> bool:
        return self._view.allowed is None or device_id in self._view.allowed

    def _shown(self, devices: Iterable[Device]) -> list[Device]:
        return [device for device in devices if self._interest.device_id in (None, device.device_id)]

    def _wait_s(self) -> float:
        until_ms = self._look_ms
        if self.identity.expires_ms is not None:
            until_ms = min(until_ms, self.identity.expires_ms)
        return max(0.001, (until_ms - self._clock.now_ms()) / SECOND_MS)

    async def _say(self, text: bytes) -> None:
        self._raise_end()
        try:
            async with asyncio.timeout(SEND_WITHIN_S):
                await self._outlet.say(text)
        except TimeoutError:
            raise _Ended(Over(TOO_SLOW, "You read too slowly. Come back with your cursor.")) from None


def initial_state(devices: Iterable[Device], position: int) -> bytes:
    shown = [
        {
            "deviceId": device.device_id,
            "name": device.name,
            "relay": None if device.relay is None else "ON" if device.relay else "OFF",
            "isOnline": device.is_online,
            "lastSeen": None if device.last_seen_ms is None else iso(device.last_seen_ms),
        }
        for device in devices
    ]
    return _encode({"type": "initial_state", "cursor": encode_cursor(position), "devices": shown})
