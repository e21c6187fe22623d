"""Which instance of a cluster holds a device's connection."""

from __future__ import annotations

from sqlalchemy import Column, Table, Text

from adapters.storage.sql.tables.columns import Int64, metadata

device_sessions = Table(
    "device_sessions",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("front", Text, nullable=False, index=True),
)
"""Connected devices, and those whose grace period runs; without a foreign key, like all that devices report."""
