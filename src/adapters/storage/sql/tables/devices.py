"""Device types, devices, their channels and their credentials.

What the service learns about devices beside their readings: health, dropped messages and dead letters.

Which instance of a cluster holds a device's connection.

Groups of devices, and their members.

Messages of devices that the database refused.

Provisioning codes, and the claims that devices make with them.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, LargeBinary, PrimaryKeyConstraint, Table, Text, UniqueConstraint, text

from adapters.storage.sql.tables.columns import (
    Int64,
    autoincrement_key,
    foreign_key_column,
    integer_column,
    metadata,
    one_of_check,
    partial_index,
    text_column,
)
from domain.devices.channels import ChannelKind
from domain.devices.model import DeviceStatus, FirmwareProfile
from domain.ingest.ports import IngestDeadLetterState
from domain.partitions.model import HASH_BITS, HASH_FACTOR
from domain.provisioning.model import ClaimStatus

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
    integer_column("relay_ms", null=True),
    text_column("folded_name"),
    text_column("search_text"),
    one_of_check("status", [status.value for status in DeviceStatus]),
    one_of_check("profile", [profile.value for profile in FirmwareProfile]),
    Index(None, "account_id", "device_no"),
    Index(None, "project_id", "device_no"),
    Index(None, "device_type_id"),
    Index("uq_devices__external_id", "account_id", "external_id", unique=True),
    Index("ix_devices__hardware_id", "account_id", text("upper(external_id)")),
    partial_index("ix_devices__online", "device_no", where=text("is_online"), on_sqlite=text("is_online = 1")),
    sqlite_autoincrement=True,
)

PARTITION_HASH = f"((device_no * {HASH_FACTOR}) & {2**HASH_BITS - 1})"

# Only several instances on PostgreSQL divide the devices among them.
Index("ix_devices__partition_hash", text(PARTITION_HASH), _table=devices).ddl_if(dialect="postgresql")

device_channels = Table(
    "device_channels",
    metadata,
    Column("device_id", Text, ForeignKey("devices.device_id", ondelete="CASCADE"), primary_key=True),
    Column("channel", Int64, primary_key=True, autoincrement=False),
    text_column("kind"),
    text_column("given_name", null=True),
    text_column("firmware_name", null=True),
    text_column("component", null=True),
    Column("is_declared", Boolean, nullable=False),
    Column("is_on", Boolean),
    integer_column("level", null=True),
    text_column("details", null=True),
    integer_column("reported_ms", null=True),
    one_of_check("kind", [kind.value for kind in ChannelKind]),
    sqlite_with_rowid=False,
)
"""Of devices that have more, or others, than one relay. Whether channel 1 is on is in `devices`."""

credentials = Table(
    "credentials",
    metadata,
    Column("device_id", Text, ForeignKey("devices.device_id", ondelete="CASCADE"), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    integer_column("created_ms"),
)


device_health = Table(
    "device_health",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    integer_column("connects"),
    text_column("firmware", null=True),
    integer_column("max_packet_size", null=True),
    integer_column("clock_offset_ms", null=True),
)

device_drops = Table(
    "device_drops",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("reason", Text, primary_key=True),
    integer_column("unannounced"),
    integer_column("last_ms"),
    integer_column("announced_ms", null=True),
    text_column("topic", null=True),
    text_column("metric", null=True),
    sqlite_with_rowid=False,
)
"""Messages of devices that were dropped, and refusals of devices, by reason, with topic and metric of the last one; without a
foreign key, like all that devices report."""


device_sessions = Table(
    "device_sessions",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("front", Text, nullable=False, index=True),
    integer_column("connected_ms"),
)
"""Connected devices, and those whose grace period runs; without a foreign key, like all that devices report."""


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


dead_letters = Table(
    "dead_letters",
    metadata,
    autoincrement_key("letter_id"),
    integer_column("device_no"),  # no foreign key: the letters of a deleted device are deleted in batches
    text_column("device_id", null=True),
    text_column("kind"),
    Column("payload", LargeBinary, nullable=False),
    integer_column("arrived_ms"),
    text_column("reason"),
    integer_column("created_ms"),
    text_column("state"),
    one_of_check("state", [state.value for state in IngestDeadLetterState]),
    Index(None, "state", "letter_id"),
    Index(None, "device_no"),
    sqlite_autoincrement=True,
)


provisioning_codes = Table(
    "provisioning_codes",
    metadata,
    autoincrement_key("seq"),
    text_column("code_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    text_column("name"),
    text_column("prefix"),
    Column("code_hash", LargeBinary, nullable=False, unique=True),
    foreign_key_column("project_id", "projects.project_id"),
    text_column("board_type"),
    text_column("app_type"),
    text_column("profile", null=True),
    foreign_key_column("device_type_id", "device_types.device_type_id", null=True, ondelete="SET NULL"),
    text_column("tags"),
    integer_column("max_devices"),
    integer_column("claimed_count"),
    Column("requires_approval", Boolean, nullable=False),
    integer_column("expires_ms"),
    foreign_key_column("created_by", "memberships.membership_id"),
    integer_column("created_ms"),
    text_column("hardware_ids"),
    one_of_check("profile", [profile.value for profile in FirmwareProfile]),
    Index(None, "account_id", "seq"),
    Index(None, "project_id"),
    Index(None, "device_type_id"),
    Index(None, "created_by"),
)

device_claims = Table(
    "device_claims",
    metadata,
    autoincrement_key("seq"),
    text_column("claim_id", unique=True),
    foreign_key_column("code_id", "provisioning_codes.code_id"),
    foreign_key_column("account_id", "accounts.account_id"),
    text_column("hardware_id"),
    text_column("name", null=True),
    text_column("address"),
    text_column("status"),
    foreign_key_column("device_id", "devices.device_id", null=True, ondelete="SET NULL"),
    integer_column("created_ms"),
    Column("token_hash", LargeBinary, nullable=False),
    text_column("decided_by", null=True),
    integer_column("decided_ms", null=True),
    integer_column("claimed_ms", null=True),
    one_of_check("status", [status.value for status in ClaimStatus]),
    UniqueConstraint("code_id", "hardware_id"),
    Index(None, "account_id", "created_ms", "seq"),
    Index(None, "account_id", "status", "created_ms", "seq"),
    Index(None, "code_id", "status"),
    Index(None, "device_id"),
)
