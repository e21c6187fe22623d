"""What the service learns about devices beside their readings: health, dropped messages and dead letters."""

from __future__ import annotations

from sqlalchemy import Column, Table, Text

from adapters.storage.sql.tables.columns import Int64, integer_column, metadata, text_column

device_health = Table(
    "device_health",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    integer_column("connects"),
    text_column("firmware", null=True),
    integer_column("max_packet_size", null=True),
    integer_column("clock_offset_ms", null=True),
)

device_drops = Table(
    "device_drops",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("reason", Text, primary_key=True),
    integer_column("unannounced"),
    integer_column("last_ms"),
    integer_column("announced_ms", null=True),
    sqlite_with_rowid=False,
)
"""Messages of devices that were dropped, by reason; without a foreign key, like all that devices report."""
