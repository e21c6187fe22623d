"""What the instances of a cluster share: who runs, and who owns which partition."""

from __future__ import annotations

from sqlalchemy import Column, Table, Text

from adapters.storage.sql.tables.columns import Int64, integer_column, metadata, text_column

partitions = Table(
    "partitions",
    metadata,
    Column("part", Int64, primary_key=True, autoincrement=False),
    integer_column("epoch"),
    integer_column("position"),
    text_column("owner"),
    text_column("log_id"),
)
members = Table(
    "members",
    metadata,
    Column("instance", Text, primary_key=True),
    integer_column("beats"),
    Column("log_reach", Int64, nullable=False, server_default="2"),
)
