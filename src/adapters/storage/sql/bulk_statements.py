"""Writes many rows by one statement.

A statement that runs once per row costs the interpreter each time: it binds the row, and between two rows the writing thread
waits for the GIL. A bulk statement takes all rows at once. SQLite reads them from one JSON text (an array per row) without the
interpreter. PostgreSQL gets one array per column, in the driver's binary form.
SQLite ends JSON text at NUL, so text from outside must be checked for NUL before; PostgreSQL requires that anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Boolean, Table

_PARAMETER = re.compile(r"\$(\d+)")
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class BulkStatement:
    """The same write in both dialects. A row has its values in the order of the statement's columns.

    PostgreSQL takes one array per column. SQLite takes one JSON text with all rows or, with `row_by_row`, one row at a time:
    that is for values which JSON cannot carry (bytes), and where there is no gain.
    """

    sqlite_sql: str
    postgres_sql: str
    json_columns: frozenset[int] = frozenset()
    """Places of the columns that store JSON; their values are given as Python objects."""
    row_by_row: bool = False

    def sqlite_params(self, rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        return rows if self.row_by_row else [(_encode(rows).decode(),)]

    def postgres_params(self, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        columns = zip(*rows, strict=True)
        return [
            [_encode(value).decode() for value in column] if place in self.json_columns else column
            for place, column in enumerate(columns)
        ]


def join_for_postgres(statements: Sequence[BulkStatement]) -> str:
    """One statement that makes all these writes; its parameters are theirs, one after the other."""
    parts: list[str] = []
    before = 0
    for statement in statements:
        parts.append(_PARAMETER.sub(partial(_shifted, before), statement.postgres_sql))
        before += len(set(_PARAMETER.findall(statement.postgres_sql)))
    *first, last = parts
    named = ", ".join(f"w{place} AS ({part})" for place, part in enumerate(first))
    return f"WITH {named} {last}" if named else last


def _shifted(by: int, parameter: re.Match[str]) -> str:
    return f"${int(parameter[1]) + by}"


def bulk_insert(
    table: Table, names: Sequence[str], *, json: Collection[str] = (), adding: str = "", replacing: Sequence[str] = ()
) -> BulkStatement:
    """INSERT into these columns. `adding` names a counter: a row whose primary key exists adds its value to it, and replaces
    those of `replacing`."""
    into = f"INSERT INTO {table.name} ({', '.join(names)}) SELECT "
    keys = ", ".join(column.name for column in table.primary_key.columns)
    changes = [f"{adding} = {table.name}.{adding} + excluded.{adding}", *(f"{name} = excluded.{name}" for name in replacing)]
    conflict = f" ON CONFLICT ({keys}) DO UPDATE SET {', '.join(changes)}" if adding else ""
    at = frozenset(place for place, name in enumerate(names) if name in json)
    given = f"unnest({_array_parameters(table, names)}) AS r({', '.join(names)})"
    return BulkStatement(
        f"{into}{', '.join(_json_values(len(names), at))} FROM json_each(?) AS r WHERE true{conflict}",
        f"{into}{', '.join(f'r.{name}' for name in names)} FROM {given} WHERE true{conflict}",
        at,
    )


def bulk_update(table: Table, key: str, names: Sequence[str]) -> BulkStatement:
    """UPDATE by key: a row has the value of `key` first, then those of `names`."""
    out = _json_values(len(names) + 1, frozenset())
    given = f"unnest({_array_parameters(table, [key, *names])}) AS r(key, {', '.join(names)})"

    def statement(values: Callable[[int], str], rows: str) -> str:
        changes = ", ".join(f"{name} = {values(place)}" for place, name in enumerate(names, 1))
        return f"UPDATE {table.name} SET {changes} FROM {rows} WHERE {table.name}.{key} = {values(0)}"  # noqa: S608

    named = ["key", *names]
    return BulkStatement(
        statement(lambda place: out[place], "json_each(?) AS r"), statement(lambda place: f"r.{named[place]}", given), frozenset()
    )


def _json_values(count: int, json_at: frozenset[int]) -> list[str]:
    return [f"r.value {'->' if place in json_at else '->>'} '$[{place}]'" for place in range(count)]


def _array_parameters(table: Table, names: Sequence[str]) -> str:
    return ", ".join(f"${place}::{_postgres_type(table.c[name].type)}[]" for place, name in enumerate(names, 1))


def _postgres_type(kind: Any) -> str:
    if isinstance(kind, Boolean):
        return "boolean"
    return "bigint" if isinstance(getattr(kind, "impl", kind), BigInteger) else "text"
