"""When readings were stored, for feed clients that resume."""

from __future__ import annotations

from sqlalchemy import Column, Index, Table

from adapters.storage.sql.tables.columns import Int64, integer_column, metadata

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
