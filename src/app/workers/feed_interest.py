"""Tells the engine which devices have live subscribers, and so which readings it must return one by one.

The law: a subscription takes effect before its answer. A reading that a device sends after the answer to a new webhook, grant or
feed connection arrives after that change was committed or noted, so it suffices that ingest calls `ensure_current` after it has
received a batch and before it evaluates it. Changes of this process are noted in memory; those of other instances are found in
the event log, because every change of access emits an event.

The worker refreshes soon after a change, and every 30 seconds for grants that expire and clients that have left. A device may
stay watched a moment too long, but never a moment too short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import field

from app.workers.due import DueLoop, WakeEvent
from domain.events.cursors import EventLogCursor
from domain.events.feed_model import FeedFilter
from domain.events.model import is_access_change
from domain.events.ports import EventsTx, FeedHub
from domain.feed.interest import DevicesWithSubscribersService
from domain.kernel.dataclasses import service
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import TelemetryEngine

REFRESH_INTERVAL_S = 30.0
DEBOUNCE_S = 0.02
"""Many clients connect at once, above all after a restart: one refresh serves them all."""
LOG_PAGE = 10_000
"""More new events than this count as a change of access, without reading them all."""


@service
class EventLogAccessChangeDetector:
    """Asks the event log, for several instances on one database."""

    uow: UnitOfWork[EventsTx]
    _cursor: EventLogCursor | None = field(default=None, init=False)

    def forget(self) -> None:
        """The log is another one; everything may have changed."""
        self._cursor = None

    async def has_changed(self) -> bool:
        """Whether another instance may have changed who may see what since the last call. Raises Unavailable."""
        async with self.uow.read() as tx:
            if self._cursor is None:
                self._cursor = await tx.events.end()
                return True
            kinds = await tx.events.list_kinds_after(self._cursor, LOG_PAGE)
            if kinds:
                self._cursor = await tx.events.end()
        return len(kinds) == LOG_PAGE or any(map(is_access_change, kinds))


@service
class DevicesWithSubscribersWorker(DueLoop):
    name = "feed_interest"

    watched_devices: DevicesWithSubscribersService
    hub: FeedHub
    engine: TelemetryEngine
    wake_event: WakeEvent
    """Set by every new client and change of access of this process."""
    peer_changes: EventLogAccessChangeDetector | None = None
    """None where no other instance writes to the database."""
    remote_filters: Callable[[], Sequence[FeedFilter]] = lambda: ()
    """What the feed clients of other instances want."""

    watched_device_nos: set[int] = field(default_factory=set, init=False)
    _refreshing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _seen_changes: int = field(default=-1, init=False)
    """`set_count` of the wake event when the last refresh began."""

    async def run_once(self) -> float:
        await self.refresh()
        return REFRESH_INTERVAL_S

    async def sleep(self, sleep_s: float) -> None:
        await self.wake_event.wait(sleep_s)
        await asyncio.sleep(DEBOUNCE_S)

    async def ensure_current(self) -> None:
        """Call this after a batch has been received and before it is evaluated. Raises Unavailable."""
        if self.peer_changes is not None and await self.peer_changes.has_changed():
            self.hub.mark_all_access_stale()
            await self.refresh()
        elif self.wake_event.set_count != self._seen_changes:
            await self.refresh()

    def repeat(self) -> None:
        """Call this when the engine has been given devices that it did not have before."""
        for device_no in self.watched_device_nos:
            self.engine.set_watched(device_no, True)

    def begin_life(self) -> None:
        """Call this when the database is another one."""
        if self.peer_changes is not None:
            self.peer_changes.forget()
        self.repeat()

    async def refresh(self) -> None:
        """Also called once before the device link opens, so that the engine returns every reading that somebody follows."""
        async with self._refreshing:
            changes = self.wake_event.set_count
            wanted = await self.watched_devices.list_watched_devices([*self.hub.filters(), *self.remote_filters()])
            for device_no in wanted - self.watched_device_nos:
                self.engine.set_watched(device_no, True)
                self.watched_device_nos.add(device_no)
            for device_no in self.watched_device_nos - wanted:
                self.engine.set_watched(device_no, False)
            self.watched_device_nos = wanted
            self._seen_changes = changes
