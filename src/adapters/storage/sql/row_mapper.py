"""Maps rows to domain values and back. Fields and columns have the same names; each table lists its exceptions.

Converters are pairs (to the database, from the database) and are never called with None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Select,
    Table,
    bindparam,
    cast,
    delete,
    literal_column,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningDelete
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.sql.db_session import POSTGRES, SQLITE, Row

T = TypeVar("T")
Converter = tuple[Callable[[Any], Any], Callable[[Any], Any]]

_decode = msgspec.json.Decoder().decode


_ValuePlan = tuple[list[str], Callable[[Any], tuple[Any, ...]], list[tuple[str, Callable[[Any], Any], bool]]]
"""Column names; the getter of all their values; the converted columns, each with whether None is converted too."""


def _single_getter(name: str) -> Callable[[Any], tuple[Any, ...]]:
    return lambda item: (getattr(item, name),)


def to_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def from_json(text: str) -> Any:
    return _decode(text)


def _enum_value(word: StrEnum) -> str:
    return word.value


def enum_converter(kind: type[StrEnum]) -> Converter:
    return (_enum_value, {one.value: one for one in kind}.__getitem__)


JSON: Converter = (to_json, from_json)


def for_update(one: Select[Any]) -> dict[bool, Select[Any]]:
    """The statement by whether the transaction may write; if so, PostgreSQL locks the row. SQLite ignores it: it has one
    writer."""
    return {False: one, True: one.with_for_update(key_share=True)}


def json_list(parameter: str = "at_listed") -> dict[str, Select[Any]]:
    """The strings of a JSON array: a list of any length is one parameter (see `to_json`)."""
    return {
        SQLITE: select(literal_column("value")).select_from(text(f"json_each(:{parameter})")),
        POSTGRES: select(literal_column("value")).select_from(text(f"json_array_elements_text(CAST(:{parameter} AS json))")),
    }


def json_integer_list(parameter: str = "at_listed") -> dict[str, Select[Any]]:
    """`json_list` for integers."""
    number = cast(literal_column("value"), BigInteger)
    return {dialect: among.with_only_columns(number) for dialect, among in json_list(parameter).items()}


class RowMapper(Generic[T]):
    """`always` names fields whose converter also takes None (JSON has its own null)."""

    def __init__(
        self, table: Table, kind: type[T], convert: Mapping[str, Converter] | None = None, *, always: tuple[str, ...] = ()
    ) -> None:
        convert = dict(convert or {})
        self.table = table
        self._entity_type = kind
        self.names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        self.columns: list[Column[Any]] = [table.c[name] for name in self.names]
        for column in self.columns:
            if isinstance(column.type, Boolean):
                convert[column.name] = (bool, bool)
        self._to_database = {name: pair[0] for name, pair in convert.items()}
        self._from_database = [convert[name][1] if name in convert else None for name in self.names]
        self._convert_none = frozenset(always)
        self._value_plans: dict[tuple[str, ...], _ValuePlan] = {}

    def select(self) -> Select[Any]:
        return select(*self.columns)

    def from_row(self, row: Row) -> T:
        """The value of a row whose first columns are `columns`."""
        pairs = zip(self._from_database, row, strict=False)
        return self._entity_type(*[v if back is None or v is None else back(v) for back, v in pairs])

    def first_or_none(self, rows: list[Row] | Any) -> T | None:
        return self.from_row(rows[0]) if rows else None

    def values(self, item: T, *without: str) -> dict[str, Any]:
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
        names = [name for name in self.names if name not in without]
        get = attrgetter(*names) if len(names) > 1 else _single_getter(names[0])
        return (
            names,
            get,
            [(name, out, name in self._convert_none) for name, out in self._to_database.items() if name not in without],
        )


def insert_or_ignore(table: Table) -> dict[str, ClauseElement]:
    """INSERT that skips rows whose key exists; RETURNING has only the inserted ones."""
    first = next(iter(table.primary_key.columns))
    return {
        SQLITE: sqlite.insert(table).on_conflict_do_nothing().returning(first),
        POSTGRES: postgresql.insert(table).on_conflict_do_nothing().returning(first),
    }


def upsert(table: Table, *columns: str) -> dict[str, ClauseElement]:
    """INSERT that updates `columns` if the primary key exists."""
    keys = list(table.primary_key.columns)
    on_sqlite, on_postgres = sqlite.insert(table), postgresql.insert(table)
    return {
        SQLITE: on_sqlite.on_conflict_do_update(index_elements=keys, set_={name: on_sqlite.excluded[name] for name in columns}),
        POSTGRES: on_postgres.on_conflict_do_update(
            index_elements=keys, set_={name: on_postgres.excluded[name] for name in columns}
        ),
    }


def escape_like(text: str) -> str:
    """The text as a part of a LIKE pattern with the escape character `\\`."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def delete_batch(table: Table, condition: ColumnElement[bool], *order: ColumnElement[int]) -> ReturningDelete[tuple[object]]:
    """DELETE of at most `at_limit` rows that match the condition."""
    keys = list(table.primary_key.columns)
    some = select(*keys).where(condition).order_by(*order).limit(bindparam("at_limit"))
    chosen = keys[0].in_(some) if len(keys) == 1 else tuple_(*keys).in_(some)
    return delete(table).where(chosen).returning(keys[0])
