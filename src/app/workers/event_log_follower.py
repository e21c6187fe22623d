"""Follows the event log that several instances write to: each event reaches the feed of this instance once, in log order.

A commit of this instance and a notification from the database wake the follower. It also polls every second, because a
notification is lost when its connection is, or when the instance that committed ends before it sends one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from adapters.feed_hub import LogOrderedFeedPublisher
from app.runtime.supervisor import FatalWorkerError
from app.workers.base_worker import DueTaskWorker
from app.workers.changes_of_other_instances import PeerChangeHandler
from app.workers.wake_event import WakeEvent
from domain.events.log_cursor import LogCursor
from domain.events.ports import HasEvents
from domain.kernel.backoff import RETRY_BACKOFF, Backoff
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from adapters.storage.sql.postgres.listen_notify import PostgresListener

log = structlog.get_logger("postgres_listener")

PAGE_SIZE = 500
POLL_INTERVAL_S = 1.0
ADVANCE_AFTER = 200
"""After so many events the idle writers are advanced: the follower then skips fewer events that it has read already."""


class EventLogFollower(DueTaskWorker):
    name = "event_log"
    backoff = Backoff((0.05, 0.2, POLL_INTERVAL_S))
    """Revoked devices are found here: a database that is back must not wait for its reader."""

    def __init__(
        self,
        *,
        uow: UnitOfWork[HasEvents],
        feed: LogOrderedFeedPublisher,
        peer_changes: PeerChangeHandler,
        wake_event: WakeEvent,
    ) -> None:
        super().__init__(wake_event)
        self._uow = uow
        self._feed = feed
        self._peer_changes = peer_changes
        self._cursor: LogCursor | None = None
        self._since_advance = 0
        self.peer_events = 0

    async def seek_to_end(self) -> None:
        """Call this once, before the start reads rules, credentials or access: a later event may change them."""
        async with self._uow.write(None) as tx:
            await tx.events.advance_idle_writers()
        async with self._uow.read() as tx:
            self._cursor = await tx.events.end()

    async def run_once(self) -> float:
        while await self._process_page():
            await self._peer_changes.apply()
        await self._peer_changes.apply()
        return POLL_INTERVAL_S

    async def _process_page(self) -> bool:
        if self._cursor is None:
            await self.seek_to_end()
        cursor = self._cursor or LogCursor()
        advance = self._since_advance >= ADVANCE_AFTER
        if advance:
            async with self._uow.write(None) as tx:
                await tx.events.advance_idle_writers()
        async with self._uow.read(one_statement=not advance) as tx:
            events = await tx.events.list_after(cursor, PAGE_SIZE)
            end = await tx.events.end() if advance and len(events) < PAGE_SIZE else None
        for event in events:
            cursor = self._cursor = cursor.after([event])
            if self._feed.publish_from_log(event, cursor):
                self.peer_events += 1
                self._peer_changes.enqueue(event)
        self._since_advance += len(events)
        if end is not None:
            self._cursor, self._since_advance = cursor.union(end), 0
        return len(events) == PAGE_SIZE


class PostgresListenerWorker:
    """Keeps the connection that receives notifications, and opens it again when it is lost."""

    name = "postgres_listener"

    def __init__(self, listener: PostgresListener) -> None:
        self._listener = listener

    async def run(self) -> None:
        attempt = 0
        while True:
            opened = self._listener.opened
            try:
                await self._listener.run_until_lost()
            except Unavailable as error:
                if error.code == "DEVICES_HELD_ELSEWHERE":
                    raise FatalWorkerError(error.message) from None
                attempt = attempt + 1 if self._listener.opened == opened else 1
                log.warning("the connection for notifications is lost; it is opened again", error=error.message, attempt=attempt)
                await asyncio.sleep(RETRY_BACKOFF.pause_s(attempt))
