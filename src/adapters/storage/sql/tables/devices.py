"""Device types, devices and their credentials."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, LargeBinary, Table, Text, text

from adapters.storage.sql.tables.columns import (
    autoincrement_key,
    foreign_key_column,
    integer_column,
    metadata,
    one_of_check,
    partial_index,
    text_column,
)
from domain.devices.model import DeviceStatus, FirmwareProfile
from domain.partitions.model import HASH_BITS, HASH_FACTOR

device_types = Table(
    "device_types",
    metadata,
    autoincrement_key("seq"),
    text_column("device_type_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    text_column("name"),
    integer_column("created_ms"),
    Index(None, "account_id", "seq"),
)

devices = Table(
    "devices",
    metadata,
    autoincrement_key("device_no"),
    text_column("device_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("project_id", "projects.project_id", ondelete="RESTRICT"),
    text_column("name"),
    text_column("board_type"),
    text_column("app_type"),
    text_column("app_type_other", null=True),
    text_column("status"),
    text_column("profile"),
    foreign_key_column("device_type_id", "device_types.device_type_id", null=True, ondelete="SET NULL"),
    text_column("description", null=True),
    text_column("location", null=True),
    text_column("manufacturer", null=True),
    text_column("model", null=True),
    text_column("industry", null=True),
    text_column("tags"),
    integer_column("created_ms"),
    integer_column("version"),
    Column("relay", Boolean),
    Column("is_online", Boolean, nullable=False),
    integer_column("last_seen_ms", null=True),
    integer_column("sched_rev"),
    integer_column("sched_rev_device", null=True),
    text_column("external_id", null=True),
    one_of_check("status", [status.value for status in DeviceStatus]),
    one_of_check("profile", [profile.value for profile in FirmwareProfile]),
    Index(None, "account_id", "device_no"),
    Index(None, "project_id", "device_no"),
    Index(None, "device_type_id"),
    Index("uq_devices__external_id", "account_id", "external_id", unique=True),
    partial_index("ix_devices__online", "device_no", where=text("is_online"), on_sqlite=text("is_online = 1")),
    sqlite_autoincrement=True,
)

PARTITION_HASH = f"((device_no * {HASH_FACTOR}) & {2**HASH_BITS - 1})"

# Only several instances on PostgreSQL divide the devices among them.
Index("ix_devices__partition_hash", text(PARTITION_HASH), _table=devices).ddl_if(dialect="postgresql")

credentials = Table(
    "credentials",
    metadata,
    Column("device_id", Text, ForeignKey("devices.device_id", ondelete="CASCADE"), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    integer_column("created_ms"),
)
