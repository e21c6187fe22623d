"""Rows for every table of the schema, made from its columns and checks, and all rows of a database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Boolean, CheckConstraint, Column, Connection, Integer, LargeBinary, Table, Text, inspect, select

from adapters.storage.sql.tables import metadata

EMPTY = {("grants", "membership_id"), ("grants", "project_id"), ("definitions", "device_type_id")}
"""A CHECK has either these or what was filled instead."""

Rows = dict[str, list[dict[str, Any]]]


def a_value(table: Table, column: Column[Any], row: int) -> Any:
    if (table.name, column.name) in EMPTY:
        return None
    for key in column.foreign_keys:
        return a_value(key.column.table, key.column, row)
    for check in table.constraints:
        known = re.fullmatch(rf"{column.name} IN \('(\w+)'.*\)", str(getattr(check, "sqltext", "")), re.DOTALL)
        if isinstance(check, CheckConstraint) and known:
            return known[1]
    match column.type:
        case Boolean():
            return row == 1
        case LargeBinary():
            return bytes([row, 0, 255])
        case Text():
            return f"{column.name} {row} ü"
        case Integer():
            return row
    raise AssertionError(f"no value is known for {table.name}.{column.name}")


def stored_columns(connection: Connection) -> Iterator[tuple[Table, list[Column[Any]]]]:
    """The program's tables that the database has, parents first, with the columns that it has."""
    there = {
        table: {column["name"] for column in columns} for (_, table), columns in inspect(connection).get_multi_columns().items()
    }
    for table in metadata.sorted_tables:
        if table.name in there:
            yield table, [column for column in table.columns if column.name in there[table.name]]


def all_rows(connection: Connection) -> Rows:
    found: Rows = {}
    for table, columns in stored_columns(connection):
        ordered = select(*columns).order_by(*[column for column in columns if column.primary_key])
        found[table.name] = [dict(row) for row in connection.execute(ordered).mappings()]
    return found
