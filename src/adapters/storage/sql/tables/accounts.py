"""Accounts, users, memberships, invitations and projects."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, LargeBinary, Table, Text, UniqueConstraint, text

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
