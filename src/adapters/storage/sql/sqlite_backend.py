"""SQLite: one writer with group commit, readers apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.refusals import Closed, ReadOnly
from adapters.storage.sql.pouring import Pour
from adapters.storage.sql.session import SQLITE, Question, Row
from adapters.storage.sql.sqlite_lane import Lane, OwedChange, OwedQuestion, prepare
from adapters.storage.sql.sqlite_readers import Readers
from adapters.storage.sql.sqlite_writer import GroupWriter, Turn
from domain.kernel.errors import Unavailable

_TOO_LONG = "The database does not answer, or this was too much at once; nothing of it was saved. Try again later."


MANY = 32
"""Rows that are worth a hop of their own: the thread writes them while what comes next is made."""


class SqliteSession:
    dialect = SQLITE

    def __init__(self, lane: Lane, turn: Turn | None) -> None:
        self._lane = lane
        self._turn = turn
        self._closed = False
        self._owed: list[OwedChange | OwedQuestion] = []
        self._under_way: asyncio.Task[None] | None = None

    @property
    def writable(self) -> bool:
        return self._turn is not None

    def close(self) -> None:
        self._closed = True

    async def read(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        self._check()
        return await self._fetch(statement, params)

    async def read_all(self, *questions: Question) -> Sequence[Sequence[Row]]:
        self._check()
        *others, (statement, params) = questions
        asked: list[OwedQuestion] = []
        for other, its in others:
            prepared = prepare(other, its)
            asked.append(OwedQuestion(prepared.sql, prepared.bind(its)))
            self._owe(asked[-1])
        last = await self._fetch(statement, params)
        return [*(one.rows for one in asked), last]

    async def write(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        self._check(writing=True)
        return await self._fetch(statement, params)

    async def many(self, statement: ClauseElement, rows: Sequence[Mapping[str, Any]]) -> None:
        self._check(writing=True)
        if rows:
            prepared = prepare(statement, rows[0])
            await self._arrived()
            await self._lane.many(prepared.sql, [prepared.bind(row) for row in rows])
            self._owed.clear()

    async def later(self, statement: ClauseElement, rows: Sequence[Mapping[str, Any]]) -> None:
        self._check(writing=True)
        if rows:
            prepared = prepare(statement, rows[0])
            self._owe(OwedChange(prepared.sql, [prepared.bind(row) for row in rows]))

    async def pour(self, pour: Pour, rows: Sequence[Sequence[Any]]) -> None:
        self._check(writing=True)
        if rows:
            self._owe(OwedChange(pour.sqlite, [(pour.text(rows),)]))
        if len(rows) >= MANY and (self._under_way is None or self._under_way.done()):
            await self._arrived()
            self._under_way = asyncio.create_task(self._lane.settle(), name="storage-pour")
            self._under_way.add_done_callback(_look_at)

    async def bulk(self, sql: str, rows: Sequence[Any]) -> None:
        self._check(writing=True)
        await self._arrived()
        await self._lane.many(sql, rows)
        self._owed.clear()

    async def settle(self) -> None:
        """Pay what is still owed: the transaction is about to end."""
        await self._arrived()
        if self._owed:
            await self._lane.settle()
            self._owed.clear()

    def give_up(self) -> None:
        """The transaction is not kept, so nothing of it may be paid by the next one."""
        for one in self._owed:
            one.void = True

    async def _arrived(self) -> None:
        """What is under way has been written. Raises what the database has against it."""
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            await under_way

    def _owe(self, one: OwedChange | OwedQuestion) -> None:
        self._owed.append(one)
        self._lane.owe_one(one)

    async def _fetch(self, statement: ClauseElement, params: Mapping[str, Any]) -> Sequence[Row]:
        prepared = prepare(statement, params)
        await self._arrived()
        rows = await self._lane.fetch(prepared.sql, prepared.bind(params))
        self._owed.clear()
        return rows

    def after_commit(self, call: Callable[[], None]) -> None:
        self._check(writing=True)
        if self._turn is not None:
            self._turn.calls.append(call)

    def _check(self, *, writing: bool = False) -> None:
        if self._closed:
            raise Closed
        if writing and self._turn is None:
            raise ReadOnly


def _look_at(done: asyncio.Task[None]) -> None:
    """Where its transaction was given up, nobody else does."""
    if not done.cancelled():
        done.exception()


class SqliteBackend:
    """Bounds: `patience_s` for a turn or a reader, `hold_s` for one transaction and for its commit, `busy_ms` for another
    process holding the lock."""

    def __init__(
        self, path: Path, *, readers: int = 6, patience_s: float = 5.0, hold_s: float = 30.0, busy_ms: int = 5_000
    ) -> None:
        self._path = path
        self._readers_size = readers
        self._patience_s = patience_s
        self._hold_s = hold_s
        self._busy_ms = busy_ms
        self._writer: GroupWriter | None = None
        self._readers: Readers | None = None

    async def start(self) -> None:
        lane = await Lane.open(self._path, reader=False, busy_ms=self._busy_ms)
        self._writer = GroupWriter(lane, patience_s=self._patience_s, settle_s=self._hold_s)
        self._readers = Readers(
            self._path, size=self._readers_size, patience_s=self._patience_s, busy_ms=self._busy_ms
        )
        self._writer.start()

    async def stop(self) -> None:
        if self._readers is not None:
            await self._readers.close()
        if self._writer is not None:
            await self._writer.stop()
            await self._writer.lane.close()
        self._readers = self._writer = None

    @property
    def writer(self) -> GroupWriter:
        if self._writer is None:
            raise Unavailable("The database is not open. Start the service first.")
        return self._writer

    async def check(self) -> None:
        """Raises Unavailable when reading or writing would."""
        if not self.writer.alive:
            raise Unavailable("The database's writer has ended. Restart the service; its log says why.")
        async with self.read():
            pass
        async with self.write():
            pass

    @asynccontextmanager
    async def write(self) -> AsyncIterator[SqliteSession]:
        writer = self.writer
        turn = await writer.begin()
        session = SqliteSession(writer.lane, turn)
        bound = asyncio.timeout(self._hold_s)
        try:
            async with bound:
                yield session
                await session.settle()
        except BaseException as error:
            session.give_up()
            turn.end(keep=False)
            if isinstance(error, TimeoutError) and bound.expired():
                raise Unavailable(_TOO_LONG) from error
            raise
        finally:
            session.close()
        turn.end(keep=True)
        await writer.settled(turn)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[SqliteSession]:
        if self._readers is None:
            raise Unavailable("The database is not open. Start the service first.")
        async with self._readers.lane() as lane:
            session = SqliteSession(lane, None)
            bound = asyncio.timeout(self._hold_s)
            try:
                async with bound:
                    yield session
            except TimeoutError as error:
                if bound.expired():
                    raise Unavailable(_TOO_LONG) from error
                raise
            finally:
                session.give_up()
                session.close()
