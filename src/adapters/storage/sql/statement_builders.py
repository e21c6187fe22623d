"""Statements that many repositories build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, Table, bindparam, cast, delete, literal_column, select, tuple_
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


def escape_like(text: str) -> str:
    """The text as a part of a LIKE pattern with the escape character `\\`."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def delete_batch(table: Table, condition: ColumnElement[bool], *order: ColumnElement[int]) -> ReturningDelete[tuple[object]]:
    """DELETE of at most `at_limit` rows that match the condition."""
    keys = list(table.primary_key.columns)
    some = select(*keys).where(condition).order_by(*order).limit(bindparam("at_limit"))
    chosen = keys[0].in_(some) if len(keys) == 1 else tuple_(*keys).in_(some)
    return delete(table).where(chosen).returning(keys[0])
