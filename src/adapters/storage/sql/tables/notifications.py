"""Mails to members: what they chose, and what is owed."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Table, Text

from adapters.storage.sql.tables.columns import autoincrement_key, integer_column, metadata, text_column

notification_settings = Table(
    "notification_settings",
    metadata,
    Column("membership_id", Text, ForeignKey("memberships.membership_id", ondelete="CASCADE"), primary_key=True),
    text_column("account_id"),
    text_column("topics"),
    integer_column("offline_minutes"),
    integer_column("quiet_from_minute", null=True),
    integer_column("quiet_to_minute", null=True),
    text_column("timezone"),
    Index(None, "account_id"),
)

notifications = Table(
    "notifications",
    metadata,
    autoincrement_key("seq"),
    text_column("membership_id"),
    text_column("topic"),
    text_column("device_id", null=True),
    text_column("subject"),
    text_column("text"),
    integer_column("due_ms"),
    integer_column("attempt"),
    Index(None, "due_ms"),
    Index(None, "device_id"),
    sqlite_autoincrement=True,
)
