"""Sealed secrets of the installation, how far steady time has come, and the row that a check of readiness writes."""

from __future__ import annotations

from sqlalchemy import Column, LargeBinary, Table, Text

from adapters.storage.sql.tables.columns import Int64, integer_column, metadata, text_column

write_probes = Table(
    "write_probes", metadata, Column("probe_id", Int64, primary_key=True, autoincrement=False), text_column("padding")
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


service_secrets = Table(
    "service_secrets", metadata, Column("name", Text, primary_key=True), Column("sealed", LargeBinary, nullable=False)
)
"""Secrets of the installation itself, encrypted."""
