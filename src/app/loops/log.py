"""Follows the log where several instances write to it: each event once, in its order, to this one's feed and to whom it concerns.

Rung by own commits and by the database's notifications; looks by itself every second for what nobody told, a notification lost
with its connection. Positions come in the order of commits, so what is behind the last one seen is all there is to see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.feed import FollowedFeed
from app.loops.doorbell import Doorbell
from app.loops.waking import WakingLoop
from app.neighbours import Neighbours
from app.supervisor import GoesNoFurther
from domain.events.ports import EventsTx
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from adapters.storage.sql.herald import PostgresHerald

PAGE = 500
LOOK_EVERY_S = 1.0


class LogLoop(WakingLoop):
    name = "log"

    def __init__(self, *, uow: UnitOfWork[EventsTx], feed: FollowedFeed, neighbours: Neighbours, bell: Doorbell) -> None:
        super().__init__(bell)
        self._uow = uow
        self._feed = feed
        self._neighbours = neighbours
        self._after: int | None = None
        self.of_others = 0

    async def look(self) -> None:
        """Once before anything is read that a later event changes: rules, logins, access."""
        async with self._uow.read() as tx:
            self._after = await tx.events.last()

    async def _work(self) -> float:
        if self._after is None:
            await self.look()
        while await self._page():
            await self._neighbours.settle()
        await self._neighbours.settle()
        return LOOK_EVERY_S

    async def _page(self) -> bool:
        async with self._uow.read() as tx:
            events = await tx.events.following(self._after or 0, PAGE)
        for event in events:
            self._after = event.position
            if self._feed.tell(event):
                self.of_others += 1
                self._neighbours.note(event)
        return len(events) == PAGE


class HeraldLoop:
    """Keeps the connection on which the database tells of the log. Losing it is a failure that the supervisor mends."""

    name = "herald"

    def __init__(self, herald: PostgresHerald) -> None:
        self._herald = herald

    async def run(self) -> None:
        try:
            await self._herald.keep()
        except Unavailable as error:
            if error.code == "DEVICES_HELD_ELSEWHERE":
                raise GoesNoFurther(error.message) from None
            raise
