"""Keeps the engine told which devices somebody looks at, and so which readings to hand out one by one.

Rung when a feed client comes or goes and when access changes; looks by itself every half minute, for grants that run out and for
changes made by other instances. A device is watched a moment too long rather than a moment too short.
"""

from __future__ import annotations

import asyncio

from app.loops.doorbell import Doorbell
from app.loops.waking import WakingLoop
from domain.events.ports import FeedHub
from domain.rules.ports import TelemetryEngine
from domain.webhooks.watching import WatchingService

LOOK_EVERY_S = 30.0
SETTLE_S = 0.02
"""Clients come in crowds, after a restart above all: one look for all of them."""


class WatchingLoop(WakingLoop):
    name = "watching"

    def __init__(self, *, watching: WatchingService, hub: FeedHub, engine: TelemetryEngine, bell: Doorbell) -> None:
        self._watching = watching
        self._hub = hub
        self._engine = engine
        super().__init__(bell)
        self.watched: set[int] = set()

    async def _work(self) -> float:
        await self.look()
        return LOOK_EVERY_S

    async def _rest(self, sleep_s: float) -> None:
        await self._bell.wait(sleep_s)
        await asyncio.sleep(SETTLE_S)

    async def look(self) -> None:
        """Once before the uplink is opened, so that no reading of a watched device comes in unwatched after a restart."""
        wanted = await self._watching.watched(self._hub.interests())
        for device_no in wanted - self.watched:
            self._engine.watch(device_no, True)
            self.watched.add(device_no)
        for device_no in self.watched - wanted:
            self._engine.watch(device_no, False)
        self.watched = wanted
