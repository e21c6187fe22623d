"""What a repository sees of a database: statements in, rows out. Behind it stands a lane of SQLite or a PostgreSQL connection.

Statements are SQLAlchemy Core and are made once, at import or by a cached function: their identity is the key under which their
SQL is kept, so that nothing is compiled twice. Values that change go in as parameters; a parameter whose name is a column's sets
that column in INSERT and UPDATE, all others (`at_…`) are for conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.sql.bulk_insert import BulkStatement
from domain.kernel.errors import Conflict

SQLITE = "sqlite"
POSTGRES = "postgresql"

Row: TypeAlias = Sequence[Any]
Query: TypeAlias = tuple[ClauseElement, Mapping[str, Any]]
"""A SELECT and its parameters."""


class UniqueViolationError(Conflict):
    """A unique key is there already. Repositories turn it into words about the thing itself."""

    def __init__(self, detail: str) -> None:
        super().__init__("This exists already. Fetch the present one and change that.")
        self.detail = detail


class ForeignKeyViolationError(Conflict):
    """What a row belongs to is gone, or something still belongs to what should go."""

    def __init__(self, detail: str) -> None:
        super().__init__("What this belongs to has been deleted meanwhile, or is still in use. Fetch it again.")
        self.detail = detail


class DbSession(Protocol):
    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`, for the few statements that differ."""
        ...

    @property
    def writable(self) -> bool: ...

    async def read(self, statement: ClauseElement, **params: Any) -> Sequence[Row]: ...

    async def read_batch(self, *questions: Query) -> Sequence[Sequence[Row]]:
        """The rows of each; on SQLite for the price of one, since the way to its thread and back is what a statement costs."""
        ...

    async def write(self, statement: ClauseElement, **params: Any) -> Sequence[Row]:
        """Rows of RETURNING: their number is how many rows changed. Raises Taken, Dangling, ReadOnly, Unavailable."""
        ...

    async def execute_many(self, statement: ClauseElement, rows: Sequence[Mapping[str, Any]], *, defer: bool = False) -> None:
        """Runs the statement once for each of `rows`, all of which have the same keys.

        `defer`: SQLite runs it together with the transaction's next statement, or at its end, because a thread hop of its own
        would cost more than the change. The next statement then raises its errors.
        """
        ...

    async def bulk_write(self, statement: BulkStatement, rows: Sequence[Sequence[Any]]) -> None:
        """Writes many rows at once; always deferred, as in `execute_many`."""
        ...

    def after_commit(self, call: Callable[[], None]) -> None: ...
