"""Accounts, people, projects, sessions and API keys."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, LargeBinary, Table, Text, UniqueConstraint, text

from adapters.storage.sql.tables.columns import belongs, counter, metadata, number, one_of, words
from domain.kernel.caller import Role

accounts = Table(
    "accounts",
    metadata,
    Column("account_id", Text, primary_key=True),
    words("name"),
    words("plan"),
    number("created_ms"),
)

users = Table(
    "users",
    metadata,
    Column("user_id", Text, primary_key=True),
    words("email", unique=True),
    words("name"),
    words("password_hash"),
    Column("email_verified", Boolean, nullable=False),
    number("created_ms"),
    number("password_changed_ms"),
)

memberships = Table(
    "memberships",
    metadata,
    counter("seq"),
    words("membership_id", unique=True),
    belongs("account_id", "accounts.account_id"),
    belongs("user_id", "users.user_id"),
    words("role"),
    number("created_ms"),
    UniqueConstraint("account_id", "user_id"),
    one_of("role", [role.value for role in Role]),
    Index(None, "user_id", "seq"),
)

projects = Table(
    "projects",
    metadata,
    counter("seq"),
    words("project_id", unique=True),
    belongs("account_id", "accounts.account_id"),
    words("name"),
    Column("is_default", Boolean, nullable=False),
    number("created_ms"),
    Index(None, "account_id", "seq"),
)
Index(
    "uq_projects__one_default",
    projects.c.account_id,
    unique=True,
    sqlite_where=projects.c.is_default == text("1"),
    postgresql_where=projects.c.is_default,
)

refresh_tokens = Table(
    "refresh_tokens",
    metadata,
    Column("token_hash", LargeBinary, primary_key=True),
    words("family"),
    belongs("user_id", "users.user_id"),
    belongs("membership_id", "memberships.membership_id"),
    number("issued_ms"),
    number("expires_ms"),
    number("spent_ms", null=True),
    number("revoked_ms", null=True),
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
    number("issued_ms"),
    number("expires_ms"),
    number("tries"),
    Column("used", Boolean, nullable=False),
)

login_failures = Table(
    "login_failures",
    metadata,
    Column("subject", Text, primary_key=True),
    number("count"),
    number("since_ms"),
    number("last_ms"),
    Index(None, "last_ms"),
)

answers = Table(
    "answers",
    metadata,
    Column("caller", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_hash", LargeBinary, nullable=False),
    number("status", null=True),
    Column("body", LargeBinary, nullable=False),
    number("at_ms"),
    Index(None, "at_ms"),
)

api_keys = Table(
    "api_keys",
    metadata,
    counter("seq"),
    words("key_id", unique=True),
    belongs("account_id", "accounts.account_id"),
    words("name"),
    words("prefix"),
    Column("secret_hash", LargeBinary, nullable=False, unique=True),
    Column("enabled", Boolean, nullable=False),
    number("last_used_ms", null=True),
    number("created_ms"),
    Index(None, "account_id", "seq"),
)
