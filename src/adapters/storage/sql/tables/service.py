"""Sealed secrets of the installation, how far steady time has come, and the row that a check of readiness writes.

The responses of requests with an idempotency key.

What the instances of a cluster share: who runs, and who owns which partition.
"""

from __future__ import annotations

from sqlalchemy import Column, Index, LargeBinary, Table, Text

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
    integer_column("heard_ms", null=True),
    integer_column("wall_offset_ms", null=True),
    integer_column("confirmed_ms", null=True),
)
"""One row: how far steady time has come, the wall time of the database when it was stored, up to which steady time devices were
heard, how far the believed wall time is ahead of steady time, and the wall time that a person last confirmed."""


database_life = Table(
    "database_life",
    metadata,
    Column("row_id", Int64, primary_key=True, autoincrement=False),
    text_column("life"),
    integer_column("began_ms"),
    text_column("pending"),
)
"""One row, made with the schema: the random id that every cursor carries, up to which wall time changes of an earlier life may be
missing, and why (a `LifeCause`, empty once a service has drawn the consequences). A move does not copy it."""


service_secrets = Table(
    "service_secrets", metadata, Column("name", Text, primary_key=True), Column("sealed", LargeBinary, nullable=False)
)
"""Secrets of the installation itself, encrypted."""


stored_responses = Table(
    "stored_responses",
    metadata,
    Column("caller", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_hash", LargeBinary, nullable=False),
    integer_column("status", null=True),
    Column("body", LargeBinary, nullable=False),
    integer_column("at_ms"),
    Index(None, "at_ms"),
)


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
    "members", metadata, Column("instance", Text, primary_key=True), integer_column("beats"), integer_column("log_reach")
)
