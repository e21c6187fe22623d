"""Keeps the engine told which devices somebody looks at, and so which readings to hand out one by one.

Rung when a feed client comes or goes and when access changes; looks by itself every half minute, for grants that run out and for
changes made by other instances. A device is watched a moment too long rather than a moment too short.
"""

from __future__ import annotations

import asyncio

import structlog

from app.loops.doorbell import Doorbell
from domain.events.ports import FeedHub
from domain.rules.ports import TelemetryEngine
from domain.webhooks.watching import WatchingService

LOOK_EVERY_S = 30.0
SETTLE_S = 0.02
"""Clients come in crowds, after a restart above all: one look for all of them."""
PAUSES_S = (0.05, 0.2, 1.0, 2.0, 5.0)

log = structlog.get_logger("watching")


class WatchingLoop:
    name = "watching"

    def __init__(self, *, watching: WatchingService, hub: FeedHub, engine: TelemetryEngine, bell: Doorbell) -> None:
        self._watching = watching
        self._hub = hub
        self._engine = engine
        self._bell = bell
        self.watched: set[int] = set()
        self.failures = 0

    async def run(self) -> None:
        attempt = 0
        while True:
            try:
                await self.look()
                attempt = 0
            except Exception as error:
                self.failures += 1
                pause_s = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
                attempt += 1
                log.warning("watching waits", error=repr(error), attempt=attempt, pause_s=pause_s)
                await asyncio.sleep(pause_s)
                continue
            await self._bell.wait(LOOK_EVERY_S)
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
