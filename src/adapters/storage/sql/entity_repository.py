"""What repositories have in common: their session, short reads and writes, and the statements of entities that have an id."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, bindparam, delete, insert, update
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.sql.row_mapper import RowMapper
from adapters.storage.sql.sql_session_port import POSTGRES, SqlSession, UniqueViolationError
from adapters.storage.sql.statement_builders import for_update

T = TypeVar("T")


class SqlRepository:
    def __init__(self, session: SqlSession) -> None:
        self._session = session

    @property
    def _takes_locks(self) -> bool:
        """In a transaction that writes to PostgreSQL. SQLite has one writer, so it needs none."""
        return self._session.writable and self._session.dialect == POSTGRES

    async def _first(self, mapper: RowMapper[T], statement: ClauseElement, **params: Any) -> T | None:
        return mapper.first_or_none(await self._session.read(statement, **params))

    async def _list(self, mapper: RowMapper[T], statement: ClauseElement, **params: Any) -> Sequence[T]:
        return [mapper.from_row(row) for row in await self._session.read(statement, **params)]

    async def _number(self, statement: ClauseElement, **params: Any) -> int:
        """The only value of the only row, such as a count."""
        [[number]] = await self._session.read(statement, **params)
        return int(number)

    async def _number_or_none(self, statement: ClauseElement, **params: Any) -> int | None:
        """As `_number`; None for NULL, such as the least of no rows."""
        [[number]] = await self._session.read(statement, **params)
        return None if number is None else int(number)

    async def _count_changed(self, statement: ClauseElement, **params: Any) -> int:
        """How many rows the statement returns of those that it changes."""
        return len(await self._session.write(statement, **params))


@contextmanager
def unique_violation_as(make_error: Callable[[], Exception]) -> Iterator[None]:
    """Raise this error for a unique key that exists already."""
    try:
        yield
    except UniqueViolationError:
        raise make_error() from None


class EntityStatements(Generic[T]):
    """The statements of a table whose entities have an id in the column `key`."""

    def __init__(
        self,
        mapper: RowMapper[T],
        key: str,
        *,
        unchanged: Sequence[str] = (),
        lock: Callable[[Select[Any]], dict[bool, Select[Any]]] = for_update,
        exists_error: Callable[[T], Exception] | None = None,
    ) -> None:
        """`unchanged`: columns that `save` leaves alone, beside the id. `exists_error`: for an entity whose other unique key
        exists already."""
        self.mapper = mapper
        self.key = key
        self.unchanged = (key, *unchanged)
        self.exists_error = exists_error
        self.is_id = mapper.table.c[key] == bindparam("at_id")
        self.add = insert(mapper.table)
        self.get = lock(self._select_one())
        """By whether the transaction may write, and the row is locked."""
        self.save = update(mapper.table).where(self.is_id)
        self.delete = delete(mapper.table).where(self.is_id)

    def _select_one(self) -> Select[Any]:
        return self.mapper.select().where(self.is_id)


class AccountEntityStatements(EntityStatements[T]):
    """Of entities that belong to an account, and have an order."""

    def __init__(self, mapper: RowMapper[T], key: str, **options: Any) -> None:
        """`options`: those of EntityStatements."""
        self.in_account = mapper.table.c.account_id == bindparam("at_account")
        super().__init__(mapper, key, **options)
        self.list = mapper.select().where(self.in_account).order_by(mapper.table.c.seq)

    def _select_one(self) -> Select[Any]:
        return super()._select_one().where(self.in_account)


class SqlStoredEntityRepository(SqlRepository, Generic[T]):
    """Adds, saves and deletes entities."""

    statements: EntityStatements[T]

    async def add(self, entity: T) -> None:
        await self._write_entity(self.statements.add, entity, self.statements.mapper.values(entity))

    async def save(self, entity: T) -> None:
        values = self.statements.mapper.values(entity, *self.statements.unchanged)
        await self._write_entity(self.statements.save, entity, {"at_id": getattr(entity, self.statements.key), **values})

    async def delete(self, entity_id: str) -> None:
        await self._session.write(self.statements.delete, at_id=entity_id)

    async def _write_entity(self, statement: ClauseElement, entity: T, params: dict[str, Any]) -> None:
        try:
            await self._session.write(statement, **params)
        except UniqueViolationError:
            if self.statements.exists_error is None:
                raise
            raise self.statements.exists_error(entity) from None


class SqlEntityRepository(SqlStoredEntityRepository[T]):
    """Finds entities by their id alone, too."""

    async def get(self, entity_id: str) -> T | None:
        return await self._first(self.statements.mapper, self.statements.get[False], at_id=entity_id)

    async def get_for_update(self, entity_id: str) -> T | None:
        return await self._first(self.statements.mapper, self.statements.get[self._session.writable], at_id=entity_id)


class SqlAccountEntityRepository(SqlStoredEntityRepository[T]):
    """Finds entities by their account and id, and lists those of an account, too."""

    statements: AccountEntityStatements[T]

    async def get(self, account_id: str, entity_id: str) -> T | None:
        return await self._first(self.statements.mapper, self.statements.get[False], at_id=entity_id, at_account=account_id)

    async def get_for_update(self, account_id: str, entity_id: str) -> T | None:
        statement = self.statements.get[self._session.writable]
        return await self._first(self.statements.mapper, statement, at_id=entity_id, at_account=account_id)

    async def list_by_account(self, account_id: str) -> Sequence[T]:
        return await self._list(self.statements.mapper, self.statements.list, at_account=account_id)
