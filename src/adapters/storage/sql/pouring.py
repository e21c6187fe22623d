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
class Pour:
    """`json_at`: the places of columns that hold JSON, and get their values as they are in Python."""

    sqlite: str
    postgres: str
    json_at: frozenset[int]

    def text(self, rows: Sequence[Sequence[Any]]) -> str:
        """SQLite's one parameter."""
        return _encode(rows).decode()

    def columns(self, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """PostgreSQL's parameters."""
        given = zip(*rows, strict=True)
        return [
            [_encode(value).decode() for value in column] if place in self.json_at else column
            for place, column in enumerate(given)
        ]


def inserting(table: Table, names: Sequence[str], *, json: Collection[str] = (), adding: str = "") -> Pour:
    """INSERT of rows with these columns; `adding` is a counter that a row whose primary key is there adds to."""
    into = f"INSERT INTO {table.name} ({', '.join(names)}) SELECT "
    keys = ", ".join(column.name for column in table.primary_key.columns)
    conflict = f" ON CONFLICT ({keys}) DO UPDATE SET {adding} = {table.name}.{adding} + excluded.{adding}" if adding else ""
    at = frozenset(place for place, name in enumerate(names) if name in json)
    given = f"unnest({_arrays(table, names)}) AS r({', '.join(names)})"
    return Pour(
        f"{into}{', '.join(_out_of_json(len(names), at))} FROM json_each(?) AS r WHERE true{conflict}",
        f"{into}{', '.join(f'r.{name}' for name in names)} FROM {given} WHERE true{conflict}",
        at,
    )


def updating(table: Table, key: str, names: Sequence[str]) -> Pour:
    """UPDATE of the rows named by `key`, each row's first place, to the columns after it."""
    out = _out_of_json(len(names) + 1, frozenset())
    given = f"unnest({_arrays(table, [key, *names])}) AS r(key, {', '.join(names)})"

    def statement(values: Callable[[int], str], rows: str) -> str:
        changes = ", ".join(f"{name} = {values(place)}" for place, name in enumerate(names, 1))
        return f"UPDATE {table.name} SET {changes} FROM {rows} WHERE {table.name}.{key} = {values(0)}"  # noqa: S608

    named = ["key", *names]
    return Pour(
        statement(lambda place: out[place], "json_each(?) AS r"),
        statement(lambda place: f"r.{named[place]}", given),
        frozenset(),
    )


def _out_of_json(count: int, json_at: frozenset[int]) -> list[str]:
    return [f"r.value {'->' if place in json_at else '->>'} '$[{place}]'" for place in range(count)]


def _arrays(table: Table, names: Sequence[str]) -> str:
    return ", ".join(f"${place}::{_type(table.c[name].type)}[]" for place, name in enumerate(names, 1))


def _type(kind: Any) -> str:
    if isinstance(kind, Boolean):
        return "boolean"
    return "bigint" if isinstance(getattr(kind, "impl", kind), BigInteger) else "text"
