"""Statements that many repositories build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    Table,
    TextClause,
    bindparam,
    cast,
    delete,
    literal_column,
    select,
    text,
    tuple_,
)
from sqlalchemy.sql.dml import ReturningDelete
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.sql.dialect_functions import json_elements
from adapters.storage.sql.dialect_inserts import Insert, insert


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
