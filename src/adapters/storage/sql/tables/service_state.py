"""What the service stores about its own operation."""

from __future__ import annotations

from sqlalchemy import Column, Index, LargeBinary, Table, Text

from adapters.storage.sql.tables.columns import Int64, integer_column, metadata, text_column

write_probes = Table(
    "write_probes",
    metadata,
    Column("probe_id", Int64, primary_key=True, autoincrement=False),
    text_column("padding"),
)
"""One row, rewritten by each readiness check."""

steady_time = Table(
    "steady_time",
    metadata,
    Column("row_id", Int64, primary_key=True, autoincrement=False),
    integer_column("steady_ms"),
    integer_column("wall_ms"),
)
"""One row: how far steady time has come, and the wall time of the database when it was stored."""

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

service_secrets = Table(
    "service_secrets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
)
"""Secrets of the installation itself, encrypted."""

stored_responses = Table(
    "answers",
    metadata,
    Column("caller", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_hash", LargeBinary, nullable=False),
    integer_column("status", null=True),
    Column("body", LargeBinary, nullable=False),
    integer_column("at_ms"),
    Index(None, "at_ms"),
)
