"""A lane is one SQLite connection with its thread: statements run in the order in which they were given, one hop each.

A hop to the thread and back costs more than most statements do. So BEGIN, SAVEPOINT and RELEASE do not get one of their own:
they are *owed*, and paid right before the next statement, in the same hop. Should one fail, the statement that paid for it
raises ControlLost, and nothing since the last commit can be trusted. Changes whose answer nobody waits for are owed the same
way, and so are questions that are asked together with another; what the database has against them is raised by the statement
that pays.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiosqlite
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.refusals import ReadOnly
from adapters.storage.sql.session import Dangling, Row, Taken
from domain.kernel.errors import Unavailable

_DIALECT = SQLiteDialect_pysqlite(paramstyle="qmark")
_TAKEN = ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID")
_DANGLING = ("SQLITE_CONSTRAINT_FOREIGNKEY", "SQLITE_CONSTRAINT_TRIGGER")
_OURS = ("SQLITE_ERROR", "SQLITE_MISUSE", "SQLITE_CONSTRAINT_CHECK", "SQLITE_CONSTRAINT_NOTNULL", "SQLITE_MISMATCH")
"""Mistakes in the program: they stay what they are, and are seen."""
BOUNDS = ("SQLITE_INTERRUPT", "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
"""The statement would have taken too long, or waited, and did nothing."""


class ControlLost(Unavailable):
    """A BEGIN, SAVEPOINT, RELEASE or COMMIT failed."""


@dataclass(slots=True)
class OwedChange:
    """`void`: its transaction is given up, and nobody pays."""

    sql: str
    rows: Sequence[Sequence[Any]]
    void: bool = False


@dataclass(slots=True)
class OwedQuestion:
    """`rows` are there once it is paid."""

    sql: str
    params: Sequence[Any]
    rows: Sequence[Row] = ()
    void: bool = False


Owed = str | OwedChange | OwedQuestion


class Paying(sqlite3.Connection):
    """A connection that pays what is owed before it does what it is told. Used in the lane's thread only."""

    owed: deque[Owed]

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self._pay()
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        self._pay()
        return super().executemany(sql, parameters)

    def at_once(self, sql: str) -> None:
        """Without paying: for what is no part of any transaction."""
        super().execute(sql)

    def _pay(self) -> None:
        while self.owed:
            one = self.owed.popleft()
            if isinstance(one, str):
                self._control(one)
            elif one.void:
                continue
            elif isinstance(one, OwedChange):
                super().executemany(one.sql, one.rows)
            else:
                self._answer(one)

    def _answer(self, question: OwedQuestion) -> None:
        """One that came to a bound of the reader's is owed still."""
        try:
            question.rows = super().execute(question.sql, question.params).fetchall()
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "").startswith(BOUNDS):
                self.owed.appendleft(question)
            raise

    def _control(self, sql: str) -> None:
        try:
            super().execute(sql)
        except sqlite3.Error as error:
            raise ControlLost(f"The database refused {sql}: {error}. Try again in a moment.") from error


class Prepared:
    """SQL with the order of its parameters."""

    __slots__ = ("_defaults", "_names", "_statement", "sql")

    def __init__(self, statement: ClauseElement, keys: Sequence[str]) -> None:
        compiled = statement.compile(dialect=_DIALECT, column_keys=list(keys))
        self._statement = statement  # kept, so that its id() stays its own
        self.sql = str(compiled)
        self._names: Sequence[str] = compiled.positiontup or ()  # type: ignore[attr-defined]
        self._defaults: Mapping[str, Any] = {k: v for k, v in compiled.params.items() if k not in keys}

    def bind(self, params: Mapping[str, Any]) -> tuple[Any, ...]:
        if self._defaults:
            params = {**self._defaults, **params}
        return tuple([params[name] for name in self._names])


_prepared: dict[tuple[int, tuple[str, ...]], Prepared] = {}


def prepare(statement: ClauseElement, params: Mapping[str, Any]) -> Prepared:
    key = (id(statement), tuple(params))
    found = _prepared.get(key)
    if found is None:
        found = _prepared[key] = Prepared(statement, key[1])
    return found


class Lane:
    def __init__(self, connection: aiosqlite.Connection, raw: Paying) -> None:
        self._connection = connection
        self._raw = raw
        self._owed = raw.owed
        self.lost = False  # a control failed: what the open transaction holds is uncertain

    @classmethod
    async def open(cls, path: Path, *, reader: bool, busy_ms: int) -> Self:
        made: list[Paying] = []

        def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection = Paying(*args, **kwargs)
            connection.owed = deque()
            made.append(connection)
            return connection

        connection = await aiosqlite.connect(
            str(path),
            isolation_level=None,
            cached_statements=512,
            timeout=busy_ms / 1000,
            check_same_thread=not reader,  # a reader may be asked in another thread while its own has nothing in hand
            factory=connect,
        )
        lane = cls(connection, made[0])
        try:
            for pragma in _pragmas(reader=reader):
                await lane.fetch(pragma)
        except BaseException:
            await lane.close()  # its thread would keep the process from ending
            raise
        return lane

    def owe(self, *controls: str) -> None:
        self._owed.extend(controls)

    def owe_one(self, one: OwedChange | OwedQuestion) -> None:
        self._owed.append(one)

    @property
    def owes(self) -> bool:
        return bool(self._owed)

    def abandon(self) -> None:
        """Forget what is owed, and that a control failed."""
        self._owed.clear()
        self.lost = False

    async def settle(self) -> None:
        """Pay what is owed now."""
        await self.fetch("SELECT 1")

    async def fetch(self, sql: str, params: Sequence[Any] = ()) -> Sequence[Row]:
        try:
            return await self._connection.execute_fetchall(sql, params)  # type: ignore[return-value]
        except ControlLost:
            self.lost = True
            raise
        except sqlite3.Error as error:
            raise told(error) from error

    async def many(self, sql: str, rows: Iterable[Any]) -> None:
        try:
            async with self._connection.executemany(sql, rows):
                pass
        except ControlLost:
            self.lost = True
            raise
        except sqlite3.Error as error:
            raise told(error) from error

    async def close(self) -> None:
        self._owed.clear()
        await self._connection.close()


def _pragmas(*, reader: bool) -> tuple[str, ...]:
    """FULL: a commit is on the disk when it returns, also through a power cut. A negative cache size is in KiB.

    The size limit gives the disk back what a burst took for the log."""
    both = ("PRAGMA foreign_keys=ON", "PRAGMA temp_store=MEMORY", "PRAGMA mmap_size=268435456")
    if reader:
        return (*both, "PRAGMA cache_size=-8000", "PRAGMA query_only=ON")
    writer = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA journal_size_limit=67108864")
    return (*writer, *both, "PRAGMA cache_size=-64000")


def told(error: sqlite3.Error) -> Exception:
    """The error in our own words."""
    name = getattr(error, "sqlite_errorname", "")
    if name in _TAKEN:
        return Taken(str(error))
    if name in _DANGLING:
        return Dangling(str(error))
    if name.startswith("SQLITE_READONLY"):
        return ReadOnly()
    if not name or name in _OURS:
        return error
    return Unavailable(f"The database cannot do this now ({error}). Try again in a moment; if it stays, check disk and files.")
