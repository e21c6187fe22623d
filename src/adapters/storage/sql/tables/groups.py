"""Groups of devices, and their members."""

from __future__ import annotations

from sqlalchemy import Index, PrimaryKeyConstraint, Table, UniqueConstraint

from adapters.storage.sql.tables.columns import autoincrement_key, foreign_key_column, integer_column, metadata, text_column

device_groups = Table(
    "device_groups",
    metadata,
    autoincrement_key("seq"),
    text_column("group_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("project_id", "projects.project_id"),
    text_column("name"),
    text_column("description", null=True),
    integer_column("created_ms"),
    UniqueConstraint("project_id", "name"),
    Index(None, "account_id", "seq"),
)

group_members = Table(
    "group_members",
    metadata,
    foreign_key_column("group_id", "device_groups.group_id"),
    foreign_key_column("device_id", "devices.device_id"),
    text_column("added_by"),
    integer_column("added_ms"),
    PrimaryKeyConstraint("group_id", "device_id"),
    Index(None, "device_id", "group_id"),
)
