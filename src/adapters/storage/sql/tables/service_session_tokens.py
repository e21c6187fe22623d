"""Service sessions: what they may beyond what their row in `user_sessions` says."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, LargeBinary, Table, Text

from adapters.storage.sql.tables.columns import foreign_key_column, integer_column, metadata, one_of_check, text_column
from domain.kernel.caller import Role

service_sessions = Table(
    "service_sessions",
    metadata,
    Column("session_id", Text, ForeignKey("user_sessions.session_id", ondelete="CASCADE"), primary_key=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("membership_id", "memberships.membership_id"),
    text_column("name"),
    text_column("prefix"),
    Column("secret_hash", LargeBinary, nullable=False, unique=True),
    text_column("role"),
    text_column("operations"),
    integer_column("created_ms"),
    integer_column("expires_ms"),
    integer_column("last_used_ms", null=True),
    one_of_check("role", [role.value for role in Role]),
    Index(None, "account_id", "created_ms"),
    Index(None, "membership_id"),
)
