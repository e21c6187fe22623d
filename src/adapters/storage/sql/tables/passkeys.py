"""Passkeys of users, and the challenges that were used and have not expired."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, LargeBinary, Table, Text

from adapters.storage.sql.tables.columns import foreign_key_column, integer_column, metadata, text_column

passkeys = Table(
    "passkeys",
    metadata,
    Column("passkey_id", Text, primary_key=True),
    foreign_key_column("user_id", "users.user_id"),
    Column("credential_id", LargeBinary, nullable=False),
    Column("public_key", LargeBinary, nullable=False),
    integer_column("sign_count"),
    text_column("name"),
    text_column("transports"),
    Column("is_synced", Boolean, nullable=False),
    integer_column("created_ms"),
    integer_column("last_used_ms", null=True),
    Index(None, "user_id"),
    Index(None, "credential_id", unique=True),
)

used_passkey_challenges = Table(
    "used_passkey_challenges",
    metadata,
    Column("challenge_hash", LargeBinary, primary_key=True),
    integer_column("expires_ms"),
    Index(None, "expires_ms"),
)
