"""A repository's view of the database: statements in, rows out, on a SQLite or a PostgreSQL connection.

Statements are SQLAlchemy Core and are built once, at import or by a cached function: the compiled SQL is cached by the
statement's identity. Values are parameters. A parameter with the name of a column sets that column in INSERT and UPDATE; all
others (`at_…`) belong to conditions.

SQLAlchemy Core, compiled once per statement; the driver runs it directly, without SQLAlchemy's engine in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from sqlalchemy.engine import Dialect
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.sql.statements import BulkStatement
from domain.kernel.errors import Conflict

SQLITE = "sqlite"
POSTGRES = "postgresql"
LOOK_UP: Mapping[str, bool] = {"latchboard_look_up": True}
"""Execution options of a SELECT that finds a few rows by their keys. SQLite needs no thread hop for it
(`sqlite/look_up_connection.py`)."""

Row: TypeAlias = Sequence[Any]
Query: TypeAlias = tuple[ClauseElement, Mapping[str, Any]]
"""A SELECT and its parameters."""
WritePlan: TypeAlias = Callable[[Sequence[Row]], Iterable[tuple[BulkStatement, Sequence[Sequence[Any]]]]]
"""From rows to bulk writes and their rows."""


class UniqueViolationError(Conflict):
    """A unique key already exists. Repositories raise a more specific error instead."""

    def __init__(self, detail: str) -> None:
        super().__init__("This already exists. Fetch the existing one and change that.")
        self.detail = detail


class ForeignKeyViolationError(Conflict):
    """A referenced row is gone, or a row to delete is still referenced."""

    def __init__(self, detail: str) -> None:
        super().__init__("Something that this refers to has been deleted, or this is still in use. Fetch it again.")
        self.detail = detail


class DeferredQueryResult(Protocol):
    """A read that SQLite runs together with the transaction's next statement."""

    async def rows(self) -> Sequence[Row]:
        """Its rows. On SQLite, those of the moment at which it ran: before every later statement of the transaction."""


class SqlSession(Protocol):
    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`, for the few statements that differ."""

    @property
    def writable(self) -> bool: ...

    locks_reads: bool
    """Whether what is found by its id is locked, as if it were to be changed."""

    async def read(self, statement: ClauseElement, **params: Any) -> Sequence[Row]: ...

    async def read_batch(self, *queries: Query) -> Sequence[Sequence[Row]]:
        """The rows of each query. On SQLite they share one thread hop, which costs more than the queries."""

    async def begin_read(self, statement: ClauseElement, **params: Any) -> DeferredQueryResult:
        """Start a read whose rows are needed later. PostgreSQL runs it at once, so a lock that it takes is held from now on."""

    async def write(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        """The rows of RETURNING, one per changed row.

        Raises UniqueViolationError, ForeignKeyViolationError, ReadOnlyTransactionError, Unavailable.
        """

    async def write_batch(self, *queries: Query) -> Sequence[Sequence[Row]]:
        """`write` of each; SQLite does them in one thread hop."""

    async def execute_many(self, statement: ClauseElement, rows: Sequence[Mapping[str, Any]], *, defer: bool = False) -> None:
        """Runs the statement once for each of `rows`, all of which have the same keys.

        `defer`: SQLite runs it together with the transaction's next statement, or at its end, because a thread hop of its own
        would cost more than the change. The next statement then raises its errors.
        """

    async def bulk_write(self, statement: BulkStatement, rows: Sequence[Sequence[Any]]) -> None:
        """Writes many rows at once; always deferred, as in `execute_many`."""

    async def bulk_write_all(self, writes: Iterable[tuple[BulkStatement, Sequence[Sequence[Any]]]]) -> None:
        """`bulk_write` to different tables; PostgreSQL does all of it in one statement."""

    async def read_then_write(self, statement: ClauseElement, plan: WritePlan, **params: Any) -> None:
        """Runs a statement that returns rows, and writes what `plan` makes of them. SQLite defers all of it, as in
        `execute_many`; `plan` then runs in the database's thread, so it only computes."""

    def after_commit(self, call: Callable[[], None]) -> None: ...


class CompiledStatement:
    """SQL with the order of its parameters."""

    __slots__ = ("_defaults", "_parameter_names", "_statement", "is_look_up", "sql")

    def __init__(self, statement: ClauseElement, keys: Sequence[str], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(keys))
        self._statement = statement  # a reference, so that no other statement gets the same id()
        self.sql = str(compiled)
        self.is_look_up = LOOK_UP.items() <= statement.get_execution_options().items()  # type: ignore[attr-defined]
        self._parameter_names: Sequence[str] = compiled.positiontup or ()  # type: ignore[attr-defined]
        self._defaults: Mapping[str, Any] = {k: v for k, v in compiled.params.items() if k not in keys}

    def bind(self, params: Mapping[str, Any]) -> tuple[Any, ...]:
        if self._defaults:
            params = {**self._defaults, **params}
        return tuple([params[name] for name in self._parameter_names])


class StatementCompiler:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._compiled: dict[tuple[int, tuple[str, ...]], CompiledStatement] = {}

    def __call__(self, statement: ClauseElement, params: Mapping[str, Any]) -> CompiledStatement:
        key = (id(statement), tuple(params))
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = CompiledStatement(statement, key[1], self._dialect)
        return found
