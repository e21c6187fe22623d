"""Follows the event log that several instances write to: each event reaches the feed of this instance once, in log order.

A commit of this instance and a notification from the database wake the follower. It also polls every second, because a
notification is lost when its connection is, or when the instance that committed ends before it sends one.
"""

from __future__ import annotations

from dataclasses import field

from adapters.feed_hub import LogOrderedFeedPublisher
from app.workers.changes_of_other_instances import OtherInstanceEventHandler
from app.workers.due_task_worker import DueTaskWorker
from domain.events.cursors import EventLogCursor
from domain.events.ports import HasEvents
from domain.kernel.backoff import Backoff
from domain.kernel.dataclasses import service
from domain.kernel.unit_of_work import UnitOfWork

PAGE_SIZE = 500
POLL_INTERVAL_S = 1.0
ADVANCE_AFTER = 200
"""After so many events the idle writers are advanced: the follower then skips fewer events that it has read already."""


@service
class EventLogFollower(DueTaskWorker):
    name = "event_log"
    backoff = Backoff((0.05, 0.2, POLL_INTERVAL_S))
    """Revoked devices are found here: a database that is back must not wait for its reader."""

    uow: UnitOfWork[HasEvents]
    feed: LogOrderedFeedPublisher
    peer_changes: OtherInstanceEventHandler
    _cursor: EventLogCursor | None = field(default=None, init=False)
    _since_advance: int = field(default=0, init=False)

    async def seek_to_end(self) -> None:
        """Call this once, before the start reads rules, credentials or access: a later event may change them."""
        async with self.uow.write(None) as tx:
            await tx.events.advance_idle_writers()
        async with self.uow.read() as tx:
            self._cursor = await tx.events.end()

    async def run_once(self) -> float:
        while await self._process_page():
            await self.peer_changes.apply()
        await self.peer_changes.apply()
        return POLL_INTERVAL_S

    async def _process_page(self) -> bool:
        if self._cursor is None:
            await self.seek_to_end()
        cursor = self._cursor or EventLogCursor()
        advance = self._since_advance >= ADVANCE_AFTER
        if advance:
            async with self.uow.write(None) as tx:
                await tx.events.advance_idle_writers()
        async with self.uow.read(one_statement=not advance) as tx:
            events = await tx.events.list_after(cursor, PAGE_SIZE)
            end = await tx.events.end() if advance and len(events) < PAGE_SIZE else None
        for event in events:
            cursor = self._cursor = cursor.after([event])
            if self.feed.publish_from_log(event, cursor):
                self.peer_changes.enqueue(event)
        self._since_advance += len(events)
        if end is not None:
            self._cursor, self._since_advance = cursor.union(end), 0
        return len(events) == PAGE_SIZE
