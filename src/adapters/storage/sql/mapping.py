"""Maps rows to domain values and back. Fields and columns have the same names; each table lists its exceptions.

Converters are pairs (to the database, from the database) and are not called with None, unless the mapper says so.

What repositories have in common: their session, short reads and writes, and the statements of entities that have an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import Boolean, ColumnElement, Select, Table, bindparam, delete, insert, select, update
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.sql.session import POSTGRES, Row, SqlSession, UniqueViolationError
from adapters.storage.sql.statements import for_update

T = TypeVar("T")
Converter = tuple[Callable[[Any], Any], Callable[[Any], Any]]

from_json: Callable[[str], Any] = msgspec.json.Decoder().decode

_ValuePlan = tuple[list[str], Callable[[Any], tuple[Any, ...]], list[tuple[str, Callable[[Any], Any], bool]]]
"""Column names; the getter of all their values; the converted columns, each with whether None is converted too."""


def _single_getter(path: str) -> Callable[[Any], tuple[Any, ...]]:
    get = attrgetter(path)
    return lambda item: (get(item),)


def to_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _enum_value(word: StrEnum) -> str:
    return word.value


def enum_converter(kind: type[StrEnum]) -> Converter:
    return (_enum_value, {one.value: one for one in kind}.__getitem__)


JSON: Converter = (to_json, from_json)
SHORT_TUPLE: Converter = (lambda items: to_json(items) if items else None, lambda text: tuple(from_json(text)) if text else ())
"""NULL for an empty one; see `always`."""
JSON_TUPLE: Converter = (to_json, lambda text: tuple(from_json(text)))


@dataclass(frozen=True, slots=True)
class EmbeddedDataclassColumns:
    """A field whose value is a dataclass of its own: each of its fields has a column, whose name begins with `prefix`."""

    kind: type[Any]
    prefix: str = ""


class RowMapper(Generic[T]):
    def __init__(
        self,
        table: Table,
        kind: type[T],
        convert: Mapping[str, Converter] | None = None,
        *,
        always: Sequence[str] = (),
        nested: Mapping[str, EmbeddedDataclassColumns] | None = None,
        computed: Mapping[str, ColumnElement[Any]] | None = None,
        cached: int = 0,
    ) -> None:
        """`convert`: by column. `always` names columns whose converters also take None (JSON has its own null). `nested`: by
        field. `computed`: fields that an expression reads and nothing writes. `cached`: how many values are kept by their whole
        row, for entities that are read often and seldom change."""
        convert = dict(convert or {})
        self.table = table
        self._entity_type = kind
        self._paths: dict[str, str] = {}
        """Of each column, in the order of the fields: where its value is in the entity."""
        self._nested: list[tuple[int, int, type[Any]]] = []
        for field, name in enumerate(each.name for each in fields(kind)):  # type: ignore[arg-type]
            inner = (nested or {}).get(name)
            if inner is None:
                self._paths[name] = name
            else:
                parts = [part.name for part in fields(inner.kind)]
                self._paths |= {f"{inner.prefix}{part}": f"{name}.{part}" for part in parts}
                self._nested.append((field, field + len(parts), inner.kind))
        self.names = list(self._paths)
        self._computed = computed or {}
        self.columns: list[ColumnElement[Any]] = [
            self._computed[name] if name in self._computed else table.c[name] for name in self.names
        ]
        for name, column in zip(self.names, self.columns, strict=True):
            if isinstance(column.type, Boolean):
                convert[name] = (bool, bool)
        self._to_database = {name: pair[0] for name, pair in convert.items()}
        self._from_database = [(convert[name][1] if name in convert else None, name in always) for name in self.names]
        self._convert_none = frozenset(always)
        self._value_plans: dict[tuple[str, ...], _ValuePlan] = {}
        if cached:
            from_cached_row = lru_cache(cached)(self.from_row)
            self.from_row = lambda row: from_cached_row(tuple(row))  # type: ignore[method-assign]

    def select(self) -> Select[Any]:
        return select(*self.columns)

    def from_row(self, row: Row) -> T:
        """The value of a row whose first columns are `columns`."""
        pairs = zip(self._from_database, row, strict=False)
        values = [v if back is None or (v is None and not always) else back(v) for (back, always), v in pairs]
        for start, end, kind in self._nested:
            values[start:end] = [kind(*values[start:end])]
        return self._entity_type(*values)

    def first_or_none(self, rows: Sequence[Row]) -> T | None:
        return self.from_row(rows[0]) if rows else None

    def values(self, item: T, *without: str) -> dict[str, Any]:
        """By column, but for those in `without`."""
        plan = self._value_plans.get(without)
        if plan is None:
            plan = self._value_plans[without] = self._plan_values(without)
        names, get, converted = plan
        found = dict(zip(names, get(item), strict=True))
        for name, out, always in converted:
            value = found[name]
            if value is not None or always:
                found[name] = out(value)
        return found

    def _plan_values(self, without: tuple[str, ...]) -> _ValuePlan:
        names = [name for name in self.names if name not in without and name not in self._computed]
        paths = [self._paths[name] for name in names]
        get = attrgetter(*paths) if len(paths) > 1 else _single_getter(paths[0])
        return (names, get, [(name, out, name in self._convert_none) for name, out in self._to_database.items() if name in names])


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
        return await self._first(self.statements.mapper, self.statements.get[self._session.locks_reads], at_id=entity_id)

    async def get_for_update(self, entity_id: str) -> T | None:
        return await self._first(self.statements.mapper, self.statements.get[self._session.writable], at_id=entity_id)


class SqlAccountEntityRepository(SqlStoredEntityRepository[T]):
    """Finds entities by their account and id, and lists those of an account, too."""

    statements: AccountEntityStatements[T]

    async def get(self, account_id: str, entity_id: str) -> T | None:
        statement = self.statements.get[self._session.locks_reads]
        return await self._first(self.statements.mapper, statement, at_id=entity_id, at_account=account_id)

    async def get_for_update(self, account_id: str, entity_id: str) -> T | None:
        statement = self.statements.get[self._session.writable]
        return await self._first(self.statements.mapper, statement, at_id=entity_id, at_account=account_id)

    async def list_by_account(self, account_id: str) -> Sequence[T]:
        return await self._list(self.statements.mapper, self.statements.list, at_account=account_id)
