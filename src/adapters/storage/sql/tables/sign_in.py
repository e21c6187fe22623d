"""Sessions of users, tokens, codes, second factors, identity providers, and what throttles sign-ins."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, LargeBinary, Table, Text, UniqueConstraint

from adapters.storage.sql.tables.columns import foreign_key_column, integer_column, metadata, text_column

user_sessions = Table(
    "user_sessions",
    metadata,
    Column("session_id", Text, primary_key=True),
    foreign_key_column("user_id", "users.user_id"),
    foreign_key_column("membership_id", "memberships.membership_id"),
    integer_column("created_ms"),
    integer_column("last_used_ms"),
    integer_column("expires_ms"),
    text_column("address"),
    text_column("user_agent"),
    integer_column("signed_out_ms", null=True),
    integer_column("revoked_ms", null=True),
    integer_column("verified_ms", null=True),
    integer_column("ends_ms", null=True),
    integer_column("provider_factor_ms", null=True),
    Index(None, "user_id", "last_used_ms"),
    Index(None, "membership_id"),
    Index(None, "expires_ms"),
)

refresh_tokens = Table(
    "refresh_tokens",
    metadata,
    Column("token_hash", LargeBinary, primary_key=True),
    text_column("family"),
    foreign_key_column("user_id", "users.user_id"),
    foreign_key_column("membership_id", "memberships.membership_id"),
    integer_column("issued_ms"),
    integer_column("expires_ms"),
    integer_column("spent_ms", null=True),
    integer_column("revoked_ms", null=True),
    Index(None, "family"),
    Index(None, "user_id"),
    Index(None, "membership_id"),
    Index(None, "expires_ms"),
)

one_time_codes = Table(
    "one_time_codes",
    metadata,
    Column("user_id", Text, ForeignKey("users.user_id", ondelete="CASCADE"), primary_key=True),
    Column("code_hash", LargeBinary, nullable=False),
    integer_column("issued_ms"),
    integer_column("expires_ms"),
    integer_column("tries"),
    Column("used", Boolean, nullable=False),
)

totp_secrets = Table(
    "totp_secrets",
    metadata,
    Column("user_id", Text, ForeignKey("users.user_id", ondelete="CASCADE"), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    integer_column("created_ms"),
    integer_column("confirmed_ms", null=True),
    integer_column("last_step"),
)

recovery_codes = Table(
    "recovery_codes",
    metadata,
    Column("user_id", Text, ForeignKey("users.user_id", ondelete="CASCADE"), primary_key=True),
    Column("code_hash", LargeBinary, primary_key=True),
)

login_challenges = Table(
    "login_challenges",
    metadata,
    Column("token_hash", LargeBinary, primary_key=True),
    foreign_key_column("user_id", "users.user_id"),
    foreign_key_column("membership_id", "memberships.membership_id"),
    integer_column("expires_ms"),
    integer_column("session_ends_ms", null=True),
    Index(None, "user_id"),
    Index(None, "membership_id"),
    Index(None, "expires_ms"),
)

external_identities = Table(
    "external_identities",
    metadata,
    Column("issuer", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    foreign_key_column("user_id", "users.user_id"),
    integer_column("created_ms"),
    integer_column("last_used_ms"),
    UniqueConstraint("user_id", "issuer"),
)

used_sign_in_states = Table(
    "used_sign_in_states",
    metadata,
    Column("state_hash", LargeBinary, primary_key=True),
    integer_column("expires_ms"),
    Index(None, "expires_ms"),
)

unlock_links = Table(
    "unlock_links",
    metadata,
    Column("user_id", Text, ForeignKey("users.user_id", ondelete="CASCADE"), primary_key=True),
    Column("token_hash", LargeBinary, nullable=False, unique=True),
    integer_column("issued_ms"),
    integer_column("expires_ms"),
    Column("used", Boolean, nullable=False),
)

login_failures = Table(
    "login_failures",
    metadata,
    Column("subject", Text, primary_key=True),
    integer_column("count"),
    integer_column("since_ms"),
    integer_column("last_ms"),
    Index(None, "last_ms"),
)
