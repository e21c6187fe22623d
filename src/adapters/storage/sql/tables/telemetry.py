"""Readings, their roll-ups, metric names and latest values.

When readings were stored, for feed clients that resume.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, LargeBinary, Table

from adapters.storage.sql.tables.columns import Int64, integer_column, metadata, text_column

readings = Table(  # on PostgreSQL in partitions BY RANGE (ts) (`schema.py`)
    "readings",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("ts", Int64, primary_key=True, autoincrement=False),
    Column("digest", Int64, primary_key=True, autoincrement=False),
    Column("packed", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

rollups = Table(  # on PostgreSQL in partitions BY RANGE (hour)
    "rollups",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("hour", Int64, primary_key=True, autoincrement=False),
    Column("packed", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

rollups_due = Table(
    "rollups_due",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("hour", Int64, primary_key=True, autoincrement=False),
    integer_column("marked_ms"),
    Index(None, "hour", "device_no"),
    sqlite_with_rowid=False,
)

tombstones = Table(
    "tombstones", metadata, Column("device_no", Int64, primary_key=True, autoincrement=False), integer_column("deleted_ms")
)

metric_names = Table(
    "metric_names", metadata, Column("metric_no", Int64, primary_key=True, autoincrement=False), text_column("name", unique=True)
)

device_metrics = Table(
    "device_metrics",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("metric_no", Int64, primary_key=True, autoincrement=False),
    text_column("unit", null=True),
    Column("reported", Boolean, nullable=False),  # else only made known
    sqlite_with_rowid=False,
)

device_latest = Table(
    "device_latest",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    integer_column("ts"),
    Column("packed", LargeBinary, nullable=False),
)


reading_store_time = Table(
    "reading_store_time",
    metadata,
    Column("row_id", Int64, primary_key=True, autoincrement=False),
    integer_column("store_time_s"),
    integer_column("marks_since_s"),
)
"""One row: the store time of the newest readings, and that from which on all marks in `late_readings` are kept."""

late_readings = Table(
    "late_readings",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("stored_minute", Int64, primary_key=True, autoincrement=False),
    integer_column("from_ms"),
    integer_column("until_ms"),
    Index(None, "stored_minute"),
    sqlite_with_rowid=False,
)
"""Late uploads, kept for a day; without a foreign key, like all that devices report."""
