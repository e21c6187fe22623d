"""What members want to be told, where, and the notifications that are owed."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, LargeBinary, Table, Text

from adapters.storage.sql.tables.columns import autoincrement_key, foreign_key_column, integer_column, metadata, text_column

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
    Column("language", Text, nullable=False, server_default="en"),
    Index(None, "account_id"),
)

notification_channels = Table(
    "notification_channels",
    metadata,
    Column("channel_id", Text, primary_key=True),
    foreign_key_column("membership_id", "memberships.membership_id"),
    text_column("account_id"),
    text_column("kind"),
    text_column("name"),
    text_column("target"),
    Column("sealed", LargeBinary, nullable=True),
    integer_column("created_ms"),
    integer_column("last_sent_ms", null=True),
    text_column("last_error", null=True),
    text_column("last_error_code", null=True),
    integer_column("last_error_ms", null=True),
    Index(None, "membership_id"),
    Index(None, "account_id"),
)

notifications = Table(
    "notifications",
    metadata,
    autoincrement_key("seq"),
    text_column("channel_id"),
    text_column("topic"),
    text_column("device_id", null=True),
    text_column("approval_id", null=True),
    text_column("subject"),
    text_column("text"),
    integer_column("due_ms"),
    integer_column("attempt"),
    Index(None, "due_ms"),
    Index(None, "device_id"),
    Index(None, "channel_id"),
    sqlite_autoincrement=True,
)
