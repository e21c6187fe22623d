"""Accounts, users, memberships, invitations and projects.

API keys. What they may do is in the grants.

Sessions of users, tokens, codes, second factors, identity providers, and what throttles sign-ins.

Passkeys of users, and the challenges that were used and have not expired.

Service sessions: what they may beyond what their row in `user_sessions` says.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, LargeBinary, Table, Text, UniqueConstraint, text

from adapters.storage.sql.tables.columns import (
    autoincrement_key,
    foreign_key_column,
    integer_column,
    metadata,
    one_of_check,
    partial_index,
    text_column,
)
from domain.kernel.caller import Role

accounts = Table(
    "accounts",
    metadata,
    Column("account_id", Text, primary_key=True),
    text_column("name"),
    text_column("plan"),
    integer_column("created_ms"),
)

users = Table(
    "users",
    metadata,
    Column("user_id", Text, primary_key=True),
    text_column("email", unique=True),
    text_column("name"),
    text_column("password_hash"),
    Column("email_verified", Boolean, nullable=False),
    integer_column("created_ms"),
    integer_column("password_changed_ms"),
)

memberships = Table(
    "memberships",
    metadata,
    autoincrement_key("seq"),
    text_column("membership_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("user_id", "users.user_id"),
    text_column("role"),
    integer_column("created_ms"),
    UniqueConstraint("account_id", "user_id"),
    one_of_check("role", [role.value for role in Role]),
    Index(None, "user_id", "seq"),
)

invitations = Table(
    "invitations",
    metadata,
    autoincrement_key("seq"),
    text_column("invitation_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    text_column("email"),
    text_column("name"),
    text_column("role"),
    text_column("invited_by"),
    Column("token_hash", LargeBinary, nullable=False, unique=True),
    integer_column("created_ms"),
    integer_column("expires_ms"),
    Column("mailed", Boolean, nullable=False),
    integer_column("voided_ms", null=True),
    UniqueConstraint("account_id", "email"),
    one_of_check("role", [role.value for role in Role]),
    Index(None, "account_id", "seq"),
    Index(None, "expires_ms"),
)

projects = Table(
    "projects",
    metadata,
    autoincrement_key("seq"),
    text_column("project_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    text_column("name"),
    Column("is_default", Boolean, nullable=False),
    integer_column("created_ms"),
    Index(None, "account_id", "seq"),
    partial_index(
        "uq_projects__one_default", "account_id", where=text("is_default"), on_sqlite=text("is_default = 1"), unique=True
    ),
)


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
    text_column("last_used_prefix", null=True),
    integer_column("created_ms"),
    text_column("created_by"),
    integer_column("expires_ms", null=True),
    text_column("allowed_networks"),
    Column("previous_hash", LargeBinary, unique=True),
    text_column("previous_prefix", null=True),
    integer_column("previous_expires_ms", null=True),
    Index(None, "account_id", "seq"),
)


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
    integer_column("wrong_codes"),
    integer_column("wrong_link_codes"),
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
