"""API keys. What they may do is in the grants."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, LargeBinary, Table

from adapters.storage.sql.tables.columns import autoincrement_key, foreign_key_column, integer_column, metadata, text_column

api_keys = Table(
    "api_keys",
    metadata,
    autoincrement_key("seq"),
    text_column("key_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    text_column("name"),
    text_column("prefix"),
    Column("secret_hash", LargeBinary, nullable=False, unique=True),
    Column("enabled", Boolean, nullable=False),
    integer_column("last_used_ms", null=True),
    integer_column("created_ms"),
    text_column("created_by", null=True),
    Index(None, "account_id", "seq"),
)
