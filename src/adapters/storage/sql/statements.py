"""Statements that many repositories build.

Writes many rows by one statement.

A statement that runs once per row costs the interpreter each time: it binds the row, and between two rows the writing thread
waits for the GIL. A bulk statement takes all rows at once. SQLite reads them from one JSON text (an array per row) without the
interpreter. PostgreSQL gets one array per column, in the driver's binary form.
SQLite ends JSON text at NUL, so text from outside must be checked for NUL before; PostgreSQL requires that anyway.

Functions that SQLite and PostgreSQL write differently: a statement that uses them is written once.

INSERT with ON CONFLICT, written once for SQLite and PostgreSQL.

It is SQLAlchemy's construct for SQLite. The one for PostgreSQL would import that dialect, 2.5 MiB that SQLite does not
need; its compiler writes both alike, but expects one attribute more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    BindParameter,
    Boolean,
    ColumnElement,
    Select,
    String,
    Table,
    Text,
    TextClause,
    bindparam,
    cast,
    delete,
    literal_column,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.dialects.sqlite.dml import OnConflictDoNothing, OnConflictDoUpdate
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import ReturningDelete
from sqlalchemy.sql.expression import ClauseElement
from sqlalchemy.sql.functions import FunctionElement

from domain.kernel.clock import TimeSpan
from domain.kernel.cursors import Position

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


class json_elements(FunctionElement[Any]):
    """The elements of a JSON array: rows with the column `value`, which on PostgreSQL is text."""

    inherit_cache = True


class json_rows(FunctionElement[Any]):
    """All rows of a group as one JSON array of arrays, in any order; on PostgreSQL, NULL for no rows."""

    inherit_cache = True
    type = Text()


class greatest(FunctionElement[Any]):
    inherit_cache = True


class least(FunctionElement[Any]):
    inherit_cache = True


_WRITTEN = {
    json_elements: ("json_each({})", "json_array_elements_text(CAST({} AS json))"),
    json_rows: ("json_group_array(json_array({}))", "CAST(json_agg(json_build_array({})) AS text)"),
    greatest: ("max({})", "greatest({})"),
    least: ("min({})", "least({})"),
}
"""On SQLite, and on PostgreSQL."""


def _write(element: FunctionElement[Any], compiler: SQLCompiler, **options: Any) -> str:
    on_sqlite, on_postgres = _WRITTEN[type(element)]
    arguments = compiler.process(element.clauses, **options)
    return (on_sqlite if compiler.dialect.name == "sqlite" else on_postgres).format(arguments)


for _function in _WRITTEN:
    compiles(_function)(_write)


__all__ = ["Insert", "insert"]


@compiles(OnConflictDoNothing, "postgresql")
def _write_do_nothing(clause: Any, compiler: Any, **options: Any) -> str:
    clause.constraint_target = None  # the conflict is named by columns, not by a constraint
    return str(compiler.visit_on_conflict_do_nothing(clause, **options))


@compiles(OnConflictDoUpdate, "postgresql")
def _write_do_update(clause: Any, compiler: Any, **options: Any) -> str:
    clause.constraint_target = None
    return str(compiler.visit_on_conflict_do_update(clause, **options))


def for_update(one: Select[Any]) -> dict[bool, Select[Any]]:
    """The statement by whether the transaction may write; if so, PostgreSQL locks the row. SQLite ignores it: it has one
    writer."""
    return {False: one, True: one.with_for_update(key_share=True)}


def listed(parameter: str = "at_listed") -> Select[Any]:
    """The strings of a JSON array: a list of any length is one parameter (see `to_json`)."""
    return select(literal_column("value")).select_from(json_elements(bindparam(parameter)))


def listed_integers() -> Select[Any]:
    return listed().with_only_columns(cast(literal_column("value"), BigInteger))


def insert_or_ignore(table: Table) -> ClauseElement:
    """INSERT that skips rows whose key exists; RETURNING has only the inserted ones."""
    return insert(table).on_conflict_do_nothing().returning(next(iter(table.primary_key.columns)))


def upsert(table: Table, *columns: str, adding: Sequence[str] = ()) -> Insert:
    """INSERT that updates `columns`, and adds to those of `adding`, if the primary key exists."""
    one = insert(table)
    changes = {name: one.excluded[name] for name in columns} | {name: table.c[name] + one.excluded[name] for name in adding}
    return one.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=changes)


def text_with_bigints(sql: str, *names: str) -> TextClause:
    """A statement with parameters that may need 64 bits."""
    return text(sql).bindparams(*[bindparam(name, type_=BigInteger()) for name in names])


def skip_scan(table: str) -> str:
    """The rows `hop`: each next device number of a table whose key begins with it, from `at_first` on, and NULL at the end. It
    costs one index seek per device, however many rows lie between."""
    return f"""
WITH RECURSIVE hop (device_no) AS (
  SELECT (SELECT min(device_no) FROM {table} WHERE device_no >= :at_first)
  UNION ALL
  SELECT (SELECT min(device_no) FROM {table} WHERE device_no > hop.device_no) FROM hop WHERE hop.device_no IS NOT NULL
)
"""  # noqa: S608 - our names


def devices_with_older(table: str, time: str) -> TextClause:
    """At most `at_limit` devices, from `at_first` on, that have rows before `at_before`."""
    older = f"(SELECT min(r.{time}) FROM {table} AS r WHERE r.device_no = hop.device_no) < :at_before"  # noqa: S608 - our names
    sql = f"{skip_scan(table)}SELECT device_no FROM hop WHERE device_no IS NOT NULL AND {older} LIMIT :at_limit"  # noqa: S608
    return text_with_bigints(sql, "at_first", "at_before", "at_limit")


@cache
def _narrowed(statement: Select[Any], column: ColumnElement[int], since: bool, until: bool) -> Select[Any]:
    if since:
        statement = statement.where(column >= bindparam("at_since"))
    return statement.where(column < bindparam("at_until")) if until else statement


def during(statement: Select[Any], column: ColumnElement[int], span: TimeSpan) -> tuple[Select[Any], dict[str, object]]:
    """A constant statement for the rows of this time, and the parameters that it has more."""
    narrowed = _narrowed(statement, column, span.since_ms is not None, span.until_ms is not None)
    return narrowed, without_none(at_since=span.since_ms, at_until=span.until_ms)


def page_start(before: Position | None, span: TimeSpan) -> tuple[Position | None, TimeSpan]:
    """Behind what a list of (time, number), newest first, begins, and what is left of the `span`. The end of the span and a
    position are one condition, so that an index finds the page however old it is, and reads nothing newer."""
    end = None if span.until_ms is None else (span.until_ms, 0)
    start = end if before is None or (end is not None and end < before) else before
    return start, TimeSpan(since_ms=span.since_ms)


def behind(*order: ColumnElement[Any], descending: bool = False) -> ColumnElement[bool]:
    """The rows behind a position in this order, which has a unique key. Its values are `position_parameters`."""
    place = tuple_(*(_position_parameter(number, column) for number, column in enumerate(order)))
    return tuple_(*order) < place if descending else tuple_(*order) > place


def _position_parameter(number: int, column: ColumnElement[Any]) -> BindParameter[Any]:
    """A number is one of 64 bits, whatever the column: a client may have written it."""
    return bindparam(f"at_position_{number}", type_=column.type if isinstance(column.type, String) else BigInteger())


def position_parameters(position: Sequence[int | str]) -> dict[str, int | str]:
    return {f"at_position_{number}": value for number, value in enumerate(position)}


def without_none(**params: object) -> dict[str, object]:
    return {name: value for name, value in params.items() if value is not None}


def escape_like(pattern: str) -> str:
    """The text as a part of a LIKE pattern with the escape character `\\`."""
    return pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def delete_batch(table: Table, condition: ColumnElement[bool], *order: ColumnElement[int]) -> ReturningDelete[tuple[object]]:
    """DELETE of at most `at_limit` rows that match the condition."""
    keys = list(table.primary_key.columns)
    some = select(*keys).where(condition).order_by(*order).limit(bindparam("at_limit"))
    chosen = keys[0].in_(some) if len(keys) == 1 else tuple_(*keys).in_(some)
    return delete(table).where(chosen).returning(keys[0])
