"""The responses of requests with an idempotency key."""

from __future__ import annotations

from sqlalchemy import Column, Index, LargeBinary, Table, Text

from adapters.storage.sql.tables.columns import integer_column, metadata

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
