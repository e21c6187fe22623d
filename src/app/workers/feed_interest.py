"""Keeps the engine told which devices somebody looks at, and so which readings to hand out one by one.

Rung when a feed client comes or goes and when access changes; looks by itself every half minute, for grants that run out and for
changes made by other instances. A device is watched a moment too long rather than a moment too short.
"""

from __future__ import annotations

import asyncio

from app.workers.base_worker import DueWorker
from app.workers.wake_event import WakeEvent
from domain.events.ports import FeedHub
from domain.feed.interest import LiveSubscriptions
from domain.rules.engine_port import TelemetryEngine

REFRESH_INTERVAL_S = 30.0
DEBOUNCE_S = 0.02
"""Clients come in crowds, after a restart above all: one look for all of them."""


class FeedInterestWorker(DueWorker):
    name = "watching"

    def __init__(self, *, watching: LiveSubscriptions, hub: FeedHub, engine: TelemetryEngine, bell: WakeEvent) -> None:
        self._live_subscriptions = watching
        self._hub = hub
        self._engine = engine
        super().__init__(bell)
        self.watched_device_nos: set[int] = set()

    async def run_once(self) -> float:
        await self.refresh()
        return REFRESH_INTERVAL_S

    async def sleep(self, sleep_s: float) -> None:
        await self._wake_event.wait(sleep_s)
        await asyncio.sleep(DEBOUNCE_S)

    async def refresh(self) -> None:
        """Once before the uplink is opened, so that no reading of a watched device comes in unwatched after a restart."""
        wanted = await self._live_subscriptions.list_watched_devices(self._hub.filters())
        for device_no in wanted - self.watched_device_nos:
            self._engine.set_watched(device_no, True)
            self.watched_device_nos.add(device_no)
        for device_no in self.watched_device_nos - wanted:
            self._engine.set_watched(device_no, False)
        self.watched_device_nos = wanted
