"""Many rows by one statement, for what is written by the thousand.

A statement run once for each row costs the interpreter each time: the row is bound, and between two rows the thread that writes
waits until whoever else runs Python lets go. Poured rows are taken over whole. SQLite reads them out of one JSON text (a row is
an array), from the first to the last without the interpreter; PostgreSQL gets an array a column, in the driver's binary form.
SQLite ends a text at NUL there, so what comes from outside must have been refused for it before, as PostgreSQL asks anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Boolean, Table

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class BulkStatement:
    """`json_at`: the places of columns that hold JSON, and get their values as they are in Python."""

    sqlite_sql: str
    postgres_sql: str
    json_columns: frozenset[int]

    def to_json_rows(self, rows: Sequence[Sequence[Any]]) -> str:
        """SQLite's one parameter."""
        return _encode(rows).decode()

    def to_column_arrays(self, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """PostgreSQL's parameters."""
        given = zip(*rows, strict=True)
        return [
            [_encode(value).decode() for value in column] if place in self.json_columns else column
            for place, column in enumerate(given)
        ]


def bulk_insert(table: Table, names: Sequence[str], *, json: Collection[str] = (), adding: str = "") -> BulkStatement:
    """INSERT of rows with these columns; `adding` is a counter that a row whose primary key is there adds to."""
    into = f"INSERT INTO {table.name} ({', '.join(names)}) SELECT "
    keys = ", ".join(column.name for column in table.primary_key.columns)
    conflict = f" ON CONFLICT ({keys}) DO UPDATE SET {adding} = {table.name}.{adding} + excluded.{adding}" if adding else ""
    at = frozenset(place for place, name in enumerate(names) if name in json)
    given = f"unnest({_array_parameters(table, names)}) AS r({', '.join(names)})"
    return BulkStatement(
        f"{into}{', '.join(_json_values(len(names), at))} FROM json_each(?) AS r WHERE true{conflict}",
        f"{into}{', '.join(f'r.{name}' for name in names)} FROM {given} WHERE true{conflict}",
        at,
    )


def bulk_update(table: Table, key: str, names: Sequence[str]) -> BulkStatement:
    """UPDATE of the rows named by `key`, each row's first place, to the columns after it."""
    out = _json_values(len(names) + 1, frozenset())
    given = f"unnest({_array_parameters(table, [key, *names])}) AS r(key, {', '.join(names)})"

    def statement(values: Callable[[int], str], rows: str) -> str:
        changes = ", ".join(f"{name} = {values(place)}" for place, name in enumerate(names, 1))
        return f"UPDATE {table.name} SET {changes} FROM {rows} WHERE {table.name}.{key} = {values(0)}"  # noqa: S608

    named = ["key", *names]
    return BulkStatement(
        statement(lambda place: out[place], "json_each(?) AS r"),
        statement(lambda place: f"r.{named[place]}", given),
        frozenset(),
    )


def _json_values(count: int, json_at: frozenset[int]) -> list[str]:
    return [f"r.value {'->' if place in json_at else '->>'} '$[{place}]'" for place in range(count)]


def _array_parameters(table: Table, names: Sequence[str]) -> str:
    return ", ".join(f"${place}::{_postgres_type(table.c[name].type)}[]" for place, name in enumerate(names, 1))


def _postgres_type(kind: Any) -> str:
    if isinstance(kind, Boolean):
        return "boolean"
    return "bigint" if isinstance(getattr(kind, "impl", kind), BigInteger) else "text"
