"""Tells the engine which devices have live subscribers, and so which readings it must return one by one.

The worker runs when a feed client connects or disconnects and when access changes. It also runs every 30 seconds, for grants that
expire and for changes made by other instances. A device may stay watched a moment too long, but never a moment too short.
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
"""Many clients connect at once, above all after a restart: one refresh serves them all."""


class FeedInterestWorker(DueWorker):
    name = "feed_interest"

    def __init__(
        self, *, live_subscriptions: LiveSubscriptions, hub: FeedHub, engine: TelemetryEngine, wake_event: WakeEvent
    ) -> None:
        super().__init__(wake_event)
        self._live_subscriptions = live_subscriptions
        self._hub = hub
        self._engine = engine
        self.watched_device_nos: set[int] = set()

    async def run_once(self) -> float:
        await self.refresh()
        return REFRESH_INTERVAL_S

    async def sleep(self, sleep_s: float) -> None:
        await self._wake_event.wait(sleep_s)
        await asyncio.sleep(DEBOUNCE_S)

    async def refresh(self) -> None:
        """Also called once before the device link opens, so that the engine returns every reading of a watched device."""
        wanted = await self._live_subscriptions.list_watched_devices(self._hub.filters())
        for device_no in wanted - self.watched_device_nos:
            self._engine.set_watched(device_no, True)
            self.watched_device_nos.add(device_no)
        for device_no in self.watched_device_nos - wanted:
            self._engine.set_watched(device_no, False)
        self.watched_device_nos = wanted
