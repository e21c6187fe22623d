"""Follows the log where several instances write to it: each event once, in its order, to this one's feed and to whom it concerns.

Rung by own commits and by the database's notifications; looks by itself every second for what nobody told, a notification lost
with its connection. Positions come in the order of commits, so what is behind the last one seen is all there is to see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.feed_hub import LogOrderedFeedPublisher
from app.runtime.peer_changes import PeerChangeHandler
from app.runtime.supervisor import FatalWorkerError
from app.workers.base_worker import DueWorker
from app.workers.wake_event import WakeEvent
from domain.events.ports import HasEvents
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from adapters.storage.sql.postgres.notifications import PostgresListener

PAGE_SIZE = 500
POLL_INTERVAL_S = 1.0


class EventLogFollower(DueWorker):
    name = "log"

    def __init__(
        self, *, uow: UnitOfWork[HasEvents], feed: LogOrderedFeedPublisher, neighbours: PeerChangeHandler, bell: WakeEvent
    ) -> None:
        super().__init__(bell)
        self._uow = uow
        self._feed = feed
        self._peer_changes = neighbours
        self._last_position: int | None = None
        self.peer_events = 0

    async def seek_to_end(self) -> None:
        """Once before anything is read that a later event changes: rules, logins, access."""
        async with self._uow.read() as tx:
            self._last_position = await tx.events.last_position()

    async def run_once(self) -> float:
        if self._last_position is None:
            await self.seek_to_end()
        while await self._process_page():
            await self._peer_changes.apply()
        await self._peer_changes.apply()
        return POLL_INTERVAL_S

    async def _process_page(self) -> bool:
        async with self._uow.read() as tx:
            events = await tx.events.list_after(self._last_position or 0, PAGE_SIZE)
        for event in events:
            self._last_position = event.position
            if self._feed.publish_from_log(event):
                self.peer_events += 1
                self._peer_changes.enqueue(event)
        return len(events) == PAGE_SIZE


class PostgresListenerWorker:
    """Keeps the connection on which the database tells of the log. Losing it is a failure that the supervisor mends."""

    name = "herald"

    def __init__(self, herald: PostgresListener) -> None:
        self._listener = herald

    async def run(self) -> None:
        try:
            await self._listener.run_until_lost()
        except Unavailable as error:
            if error.code == "DEVICES_HELD_ELSEWHERE":
                raise FatalWorkerError(error.message) from None
            raise
