"""Rows for every table of the schema, made from its columns and checks, and all rows of a database."""

from __future__ import annotations

import re
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


def all_rows(connection: Connection) -> Rows:
    looking = inspect(connection)
    found: Rows = {}
    for table in metadata.sorted_tables:
        if table.name in looking.get_table_names():
            there = {column["name"] for column in looking.get_columns(table.name)}
            columns = [column for column in table.columns if column.name in there]
            ordered = select(*columns).order_by(*[column for column in columns if column.primary_key])
            found[table.name] = [dict(row) for row in connection.execute(ordered).mappings()]
    return found
