"""What repositories see of a SQLite connection. Writes that return nothing are deferred: they share a later thread hop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Delete, Table, TextClause
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.errors import ReadOnlyTransactionError, TransactionClosedError
from adapters.storage.sql.session import SQLITE, Query, Row, WritePlan
from adapters.storage.sql.sqlite.connections import (
    DeferredQueryStatement,
    DeferredReadThenWriteStatement,
    DeferredWriteStatement,
    SqliteConnection,
    compile_statement,
)
from adapters.storage.sql.sqlite.writer import WriteTicket
from adapters.storage.sql.statements import BulkStatement
from adapters.storage.sql.tables import metadata
from domain.approvals.model import ApprovalStatus
from domain.commands.model import ExecutionStatus
from domain.kernel.unit_of_work import NeedsWriterError

EARLY_FLUSH_ROWS = 32
"""From this many rows on, a bulk write gets a thread hop of its own: the thread writes while the event loop goes on."""


class SqliteDeferredQueryResult:
    def __init__(self, session: SqliteSession, read: DeferredQueryStatement) -> None:
        self._session = session
        self._read = read

    async def rows(self) -> Sequence[Row]:
        if not self._read.done:
            await self._session.flush()
        return self._read.rows


class SqliteSession:
    dialect = SQLITE

    def __init__(
        self, connection: SqliteConnection, ticket: WriteTicket | None, before_wait: Callable[[], None] = lambda: None
    ) -> None:
        """`before_wait` is called before each statement that runs in the connection's thread."""
        self._connection = connection
        self._ticket = ticket
        self._before_wait = before_wait
        self._closed = False
        self.locks_reads = False  # its one writer has locked all
        self._deferred: list[DeferredWriteStatement | DeferredQueryStatement | DeferredReadThenWriteStatement] = []
        self._flush_task: asyncio.Task[None] | None = None

    @property
    def writable(self) -> bool:
        return self._ticket is not None

    def close(self) -> None:
        self._closed = True

    async def read(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        self._require_open()
        return await self._fetch(statement, params)

    async def read_batch(self, *queries: Query) -> Sequence[Sequence[Row]]:
        self._require_open()
        return await self._fetch_batch(queries)

    async def write_batch(self, *queries: Query) -> Sequence[Sequence[Row]]:
        self._require_open(writing=True)
        return await self._fetch_batch(queries)

    async def _fetch_batch(self, queries: Sequence[Query]) -> Sequence[Sequence[Row]]:
        *first_queries, (last_statement, last_params) = queries
        deferred: list[DeferredQueryStatement] = []
        for statement, params in first_queries:
            compiled = compile_statement(statement, params)
            deferred.append(DeferredQueryStatement(compiled.sql, compiled.bind(params)))
            self._defer(deferred[-1])
        last_rows = await self._fetch(last_statement, last_params)
        return [*(read.rows for read in deferred), last_rows]

    async def begin_read(self, statement: ClauseElement, **params: Any) -> SqliteDeferredQueryResult:
        self._require_open()
        compiled = compile_statement(statement, params)
        read = DeferredQueryStatement(compiled.sql, compiled.bind(params))
        self._defer(read)
        return SqliteDeferredQueryResult(self, read)

    async def write(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        self._require_open(writing=True)
        return await self._fetch(statement, params)

    async def execute_many(self, statement: ClauseElement, rows: Sequence[Mapping[str, Any]], *, defer: bool = False) -> None:
        self._require_open(writing=True)
        if not rows:
            return
        compiled = compile_statement(statement, rows[0])
        params = [compiled.bind(row) for row in rows]
        if defer:
            self._defer(DeferredWriteStatement(compiled.sql, params))
            return
        await self._wait_for_flush()
        await self._connection.execute_many(compiled.sql, params)
        self._deferred.clear()

    async def bulk_write(self, statement: BulkStatement, rows: Sequence[Sequence[Any]]) -> None:
        await self.bulk_write_all([(statement, rows)])

    async def bulk_write_all(self, writes: Iterable[tuple[BulkStatement, Sequence[Sequence[Any]]]]) -> None:
        self._require_open(writing=True)
        longest = 0
        for statement, rows in writes:
            if rows:
                self._defer(DeferredWriteStatement(statement.sqlite_sql, statement.sqlite_params(rows)))
                longest = max(longest, len(rows))
        if longest >= EARLY_FLUSH_ROWS and (self._flush_task is None or self._flush_task.done()):
            await self._wait_for_flush()
            self._flush_task = asyncio.create_task(self._connection.flush(), name="storage-flush")
            self._flush_task.add_done_callback(_retrieve_exception)

    async def read_then_write(self, statement: ClauseElement, plan: WritePlan, **params: Any) -> None:
        self._require_open(writing=True)
        compiled = compile_statement(statement, params)

        def in_thread(rows: Sequence[Row]) -> Iterator[tuple[str, Sequence[Sequence[Any]]]]:
            return ((bulk.sqlite_sql, bulk.sqlite_params(written)) for bulk, written in plan(rows) if written)

        self._defer(DeferredReadThenWriteStatement(compiled.sql, compiled.bind(params), in_thread))

    async def flush(self) -> None:
        """Run the deferred statements."""
        await self._wait_for_flush()
        if self._deferred:
            self._before_wait()
            await self._connection.flush()
            self._deferred.clear()

    async def end(self) -> None:
        """The transaction has succeeded. What is still deferred runs with the next statement of the group."""
        await self._wait_for_flush()
        if self._deferred and self._ticket is not None:
            for statement in self._deferred:
                statement.transaction = self._ticket.deferred

    def cancel_deferred(self) -> None:
        """The transaction is rolled back, so its deferred statements must not run in the next one."""
        for statement in self._deferred:
            statement.cancelled = True

    async def _wait_for_flush(self) -> None:
        """Wait for an early flush. Raises its error."""
        if self._flush_task is not None:
            flush, self._flush_task = self._flush_task, None
            await flush

    def _defer(self, statement: DeferredWriteStatement | DeferredQueryStatement | DeferredReadThenWriteStatement) -> None:
        self._deferred.append(statement)
        self._connection.defer(statement)

    async def _fetch(self, statement: ClauseElement, params: Mapping[str, Any]) -> Sequence[Row]:
        compiled = compile_statement(statement, params)
        bound = compiled.bind(params)
        if compiled.is_look_up:
            found = self._connection.try_look_up(compiled.sql, bound)
            if found is not None:
                return found
        await self._wait_for_flush()
        self._before_wait()
        rows = await self._connection.fetch(compiled.sql, bound)
        self._deferred.clear()
        return rows

    def after_commit(self, call: Callable[[], None]) -> None:
        self._require_open(writing=True)
        if self._ticket is not None:
            self._ticket.after_commit_calls.append(call)

    def _require_open(self, *, writing: bool = False) -> None:
        if self._closed:
            raise TransactionClosedError
        if writing and self._ticket is None:
            raise ReadOnlyTransactionError


_OF_ACCOUNT = "account_id = ?1"
_OF_DEVICES = "device_id IN (SELECT device_id FROM main.devices WHERE account_id = ?1)"
_OF_SCHEDULES = "schedule_id IN (SELECT schedule_id FROM main.schedules WHERE account_id = ?1)"
_OPEN = ", ".join(f"'{status.value}'" for status in ExecutionStatus if not status.is_final)
REHEARSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("devices", "device_types", "projects", "device_groups", "definitions", "rules", "schedules", "grants"), _OF_ACCOUNT
    ),
    **dict.fromkeys(("api_keys", "webhooks"), _OF_ACCOUNT),
    "executions": f"{_OF_ACCOUNT} AND status IN ({_OPEN})",
    "approvals": f"{_OF_ACCOUNT} AND status = '{ApprovalStatus.PENDING.value}'",
    **dict.fromkeys(("credentials", "device_channels"), _OF_DEVICES),
    "left_edges": _OF_DEVICES,
    "schedule_edges": _OF_SCHEDULES,
    "group_members": "group_id IN (SELECT group_id FROM main.device_groups WHERE account_id = ?1)",
    "grant_uses": "grant_id IN (SELECT grant_id FROM main.grants WHERE account_id = ?1)",
    "device_metrics": "device_no IN (SELECT device_no FROM main.devices WHERE account_id = ?1)",
    "metric_names": "true",
}
"""The tables that a rehearsal changes, and which of their rows it may read."""
_WRITTEN_TABLE = re.compile(r"(?:INSERT INTO|UPDATE) (\w+)")
_DEFINITIONS = "SELECT type, sql FROM main.sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL ORDER BY type DESC"
_BEFORE_NAME = re.compile(r"^CREATE (TABLE|INDEX|UNIQUE INDEX) ")


class SqliteRehearsalSession(SqliteSession):
    """Changes nothing: before the first write to a table, its rows of the account are copied to a temporary table of the same
    name, which SQLite finds before the stored one. Reads of all other tables see the snapshot.

    Foreign keys are not followed, so that a row which others refer to is not deleted here. Raises NeedsWriterError instead, and
    for a table that is not in `REHEARSED`."""

    def __init__(self, connection: SqliteConnection, account: str) -> None:
        super().__init__(connection, WriteTicket(asyncio.get_running_loop()))
        self._account = account
        self._copied: set[str] = set()

    async def write(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        await self._copy_table_of(statement)
        return await super().write(statement, **params)

    async def write_batch(self, *queries: Query) -> Sequence[Sequence[Row]]:
        for statement, _ in queries:
            await self._copy_table_of(statement)
        return await super().write_batch(*queries)

    async def execute_many(self, statement: ClauseElement, rows: Sequence[Mapping[str, Any]], *, defer: bool = False) -> None:
        await self._copy_table_of(statement)
        await super().execute_many(statement, rows, defer=defer)

    async def bulk_write_all(self, writes: Iterable[tuple[BulkStatement, Sequence[Sequence[Any]]]]) -> None:
        taken = list(writes)
        for statement, _ in taken:
            await self._copy(_written_table(statement.sqlite_sql))
        await super().bulk_write_all(taken)

    async def read_then_write(self, statement: ClauseElement, plan: WritePlan, **params: Any) -> None:
        def checked(rows: Sequence[Row]) -> Iterable[tuple[BulkStatement, Sequence[Sequence[Any]]]]:
            writes = list(plan(rows))
            if not {_written_table(bulk.sqlite_sql) for bulk, _ in writes} <= self._copied:
                raise NeedsWriterError
            return writes

        await super().read_then_write(statement, checked, **params)

    async def _copy_table_of(self, statement: ClauseElement) -> None:
        if isinstance(statement, TextClause):
            await self._copy(_written_table(statement.text))
            return
        table = statement.table if isinstance(statement, UpdateBase) else None
        if not isinstance(table, Table) or (isinstance(statement, Delete) and table.name in _parents()):
            raise NeedsWriterError
        await self._copy(table.name)

    async def _copy(self, table: str) -> None:
        if table in self._copied:
            return
        if table not in REHEARSED:
            raise NeedsWriterError
        for kind, sql in await self._connection.fetch(_DEFINITIONS, (table,)):
            if kind in ("table", "index"):
                await self._connection.fetch(
                    _BEFORE_NAME.sub(r"CREATE TEMP TABLE " if kind == "table" else r"CREATE \1 temp.", sql)
                )
        rows = f"INSERT INTO temp.{table} SELECT * FROM main.{table} WHERE ?1 <> '' AND {REHEARSED[table]}"  # noqa: S608 (constants)
        await self._connection.fetch(rows, (self._account,))
        self._copied.add(table)


def _written_table(sql: str) -> str:
    """Empty for another statement than an INSERT or UPDATE."""
    named = _WRITTEN_TABLE.match(sql)
    return "" if named is None else named[1]


@cache
def _parents() -> frozenset[str]:
    """The tables that others refer to."""
    return frozenset(key.column.table.name for table in metadata.tables.values() for key in table.foreign_keys)


def _retrieve_exception(done: asyncio.Task[None]) -> None:
    """Nothing else retrieves it if the transaction was rolled back."""
    if not done.cancelled():
        done.exception()
