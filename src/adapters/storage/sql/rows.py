"""Rows to values of the domain and back. Fields and columns have the same names; what differs is said per table.

Converters are pairs (to the database, from the database) and are never called with None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import BigInteger, Boolean, Column, Select, Table, cast, literal_column, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.sql.session import POSTGRES, SQLITE, Row

T = TypeVar("T")
Converter = tuple[Callable[[Any], Any], Callable[[Any], Any]]

_decode = msgspec.json.Decoder().decode


_Plan = tuple[list[str], Callable[[Any], tuple[Any, ...]], list[tuple[str, Callable[[Any], Any], bool]]]
"""Column names, what takes their values out of an item at once, and those that are converted, with whether None is too."""


def _alone(name: str) -> Callable[[Any], tuple[Any, ...]]:
    return lambda item: (getattr(item, name),)


def to_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def from_json(text: str) -> Any:
    return _decode(text)


def _value(word: StrEnum) -> str:
    return word.value


def word(kind: type[StrEnum]) -> Converter:
    return (_value, {one.value: one for one in kind}.__getitem__)


JSON: Converter = (to_json, from_json)


def held(one: Select[Any]) -> dict[bool, Select[Any]]:
    """The same by whether the transaction writes: there PostgreSQL keeps the row for it alone. SQLite has one
    writer anyway, and is not told."""
    return {False: one, True: one.with_for_update(key_share=True)}


def listed(parameter: str = "at_listed") -> dict[str, Select[Any]]:
    """The strings of a JSON array, so that a list of any length is one parameter (made by `to_json`)."""
    return {
        SQLITE: select(literal_column("value")).select_from(text(f"json_each(:{parameter})")),
        POSTGRES: select(literal_column("value")).select_from(text(f"json_array_elements_text(CAST(:{parameter} AS json))")),
    }


def listed_numbers(parameter: str = "at_listed") -> dict[str, Select[Any]]:
    """The same for whole numbers."""
    number = cast(literal_column("value"), BigInteger)
    return {dialect: among.with_only_columns(number) for dialect, among in listed(parameter).items()}


class Mapper(Generic[T]):
    """`always` names fields whose converter also takes None (JSON, where null is a value of its own)."""

    def __init__(
        self, table: Table, kind: type[T], convert: Mapping[str, Converter] | None = None, *, always: tuple[str, ...] = ()
    ) -> None:
        convert = dict(convert or {})
        self.table = table
        self._kind = kind
        self.names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        self.columns: list[Column[Any]] = [table.c[name] for name in self.names]
        for column in self.columns:
            if isinstance(column.type, Boolean):
                convert[column.name] = (bool, bool)
        self._out = {name: pair[0] for name, pair in convert.items()}
        self._back = [convert[name][1] if name in convert else None for name in self.names]
        self._always = frozenset(always)
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def select(self) -> Select[Any]:
        return select(*self.columns)

    def of(self, row: Row) -> T:
        """The value of a row whose first columns are `columns`."""
        pairs = zip(self._back, row, strict=False)
        return self._kind(*[v if back is None or v is None else back(v) for back, v in pairs])

    def maybe(self, rows: list[Row] | Any) -> T | None:
        return self.of(rows[0]) if rows else None

    def values(self, item: T, *without: str) -> dict[str, Any]:
        plan = self._plans.get(without)
        if plan is None:
            plan = self._plans[without] = self._plan(without)
        names, get, converted = plan
        found = dict(zip(names, get(item), strict=True))
        for name, out, always in converted:
            value = found[name]
            if value is not None or always:
                found[name] = out(value)
        return found

    def _plan(self, without: tuple[str, ...]) -> _Plan:
        names = [name for name in self.names if name not in without]
        get = attrgetter(*names) if len(names) > 1 else _alone(names[0])
        return names, get, [(name, out, name in self._always) for name, out in self._out.items() if name not in without]


def ignoring(table: Table) -> dict[str, ClauseElement]:
    """INSERT that passes over rows whose key is there; RETURNING has only those that went in."""
    first = next(iter(table.primary_key.columns))
    return {
        SQLITE: sqlite.insert(table).on_conflict_do_nothing().returning(first),
        POSTGRES: postgresql.insert(table).on_conflict_do_nothing().returning(first),
    }


def replacing(table: Table, *columns: str) -> dict[str, ClauseElement]:
    """INSERT that sets `columns` of a row whose primary key is there already."""
    keys = list(table.primary_key.columns)
    on_sqlite, on_postgres = sqlite.insert(table), postgresql.insert(table)
    return {
        SQLITE: on_sqlite.on_conflict_do_update(
            index_elements=keys, set_={name: on_sqlite.excluded[name] for name in columns}
        ),
        POSTGRES: on_postgres.on_conflict_do_update(
            index_elements=keys, set_={name: on_postgres.excluded[name] for name in columns}
        ),
    }
