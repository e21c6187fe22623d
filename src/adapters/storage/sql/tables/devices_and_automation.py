"""Devices, their commands, schedules and rules."""

from __future__ import annotations

from sqlalchemy import Boolean, CheckConstraint, Column, ForeignKey, Index, LargeBinary, Table, Text, UniqueConstraint, text

from adapters.storage.sql.tables.columns import (
    Int64,
    autoincrement_key,
    foreign_key_column,
    integer_column,
    metadata,
    on_postgres,
    one_of_check,
    sql_literals,
    text_column,
)
from domain.commands.model import CommandKind, CommandWidget, ExecutionStatus, TriggeredBy
from domain.devices.model import DeviceStatus, FirmwareProfile
from domain.partitions.device_hash import HASH_BITS, HASH_FACTOR
from domain.rules.model import MatchMode
from domain.schedules.model import SLOTS_PER_DEVICE, MisfirePolicy, ScheduleStatus, SwitchEdge

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
    sqlite_autoincrement=True,
)
PARTITION_HASH = f"((device_no * {HASH_FACTOR}) & {2**HASH_BITS - 1})"
# Only several instances on PostgreSQL divide the devices among them.
Index("ix_devices__partition_hash", text(PARTITION_HASH), _table=devices).ddl_if(dialect="postgresql")
Index(
    "ix_devices__online",
    devices.c.device_no,
    sqlite_where=devices.c.is_online == text("1"),
    info=on_postgres(where=devices.c.is_online),
)

credentials = Table(
    "credentials",
    metadata,
    Column("device_id", Text, ForeignKey("devices.device_id", ondelete="CASCADE"), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    integer_column("created_ms"),
)

definitions = Table(
    "definitions",
    metadata,
    autoincrement_key("seq"),
    text_column("command_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("device_id", "devices.device_id", null=True),
    foreign_key_column("device_type_id", "device_types.device_type_id", null=True),
    text_column("name"),
    text_column("label"),
    text_column("description", null=True),
    text_column("kind"),
    text_column("params_schema", null=True),
    text_column("shape"),
    Column("requires_approval", Boolean, nullable=False),
    integer_column("created_ms"),
    UniqueConstraint("device_id", "name"),
    UniqueConstraint("device_type_id", "name"),
    CheckConstraint("(device_id IS NULL) <> (device_type_id IS NULL)", name="one_place"),
    one_of_check("kind", [kind.value for kind in CommandKind]),
    one_of_check("shape", [shape.value for shape in CommandWidget]),
)

OPEN = text(f"status IN ({sql_literals([ExecutionStatus.QUEUED.value, ExecutionStatus.SENT.value])})")
UNFINISHED = text(f"status IN ({sql_literals(s.value for s in ExecutionStatus if not s.is_final)})")
FINISHED = text(f"status IN ({sql_literals(s.value for s in ExecutionStatus if s.is_final)})")
QUEUED = text("status = 'QUEUED'")

executions = Table(
    "executions",
    metadata,
    autoincrement_key("seq"),
    text_column("execution_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("device_id", "devices.device_id"),
    integer_column("device_no"),
    text_column("cmd"),
    text_column("params"),
    text_column("status"),
    text_column("source"),
    text_column("requested_by"),
    text_column("grant_id", null=True),
    integer_column("created_ms"),
    integer_column("expires_ms"),
    integer_column("sent_ms", null=True),
    integer_column("finished_ms", null=True),
    text_column("result"),
    text_column("approval_id", null=True),
    one_of_check("status", [status.value for status in ExecutionStatus]),
    one_of_check("source", [source.value for source in TriggeredBy]),
    Index(None, "device_id", "seq"),
    Index("ix_executions__queued", "seq", sqlite_where=QUEUED, info=on_postgres(where=QUEUED)),
    Index("ix_executions__open", "device_id", "seq", sqlite_where=OPEN, info=on_postgres(where=OPEN)),
    Index("ix_executions__expiry", "expires_ms", "seq", sqlite_where=UNFINISHED, info=on_postgres(where=UNFINISHED)),
    Index("ix_executions__finished", "created_ms", sqlite_where=FINISHED, info=on_postgres(where=FINISHED)),
    sqlite_autoincrement=True,
)

LIVE = text(f"status IN ({sql_literals([ScheduleStatus.PENDING.value, ScheduleStatus.ACTIVE.value])})")
ENDED = text(f"status IN ({sql_literals([ScheduleStatus.COMPLETED.value, ScheduleStatus.CANCELLED.value])})")
WAITING_SQLITE = text(f"enabled = 1 AND {LIVE.text}")
WAITING_POSTGRES = text(f"enabled AND {LIVE.text}")

schedules = Table(
    "schedules",
    metadata,
    autoincrement_key("seq"),
    text_column("schedule_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("device_id", "devices.device_id"),
    integer_column("device_no"),
    integer_column("slot"),
    integer_column("on_ts"),
    integer_column("off_ts"),
    text_column("label"),
    Column("enabled", Boolean, nullable=False),
    text_column("status"),
    text_column("on_command"),
    text_column("off_command"),
    text_column("rrule", null=True),
    text_column("timezone"),
    text_column("misfire"),
    integer_column("misfire_grace_s"),
    integer_column("revision"),
    integer_column("next_fire_ts", null=True),
    text_column("next_edge", null=True),
    integer_column("last_fired_ms", null=True),
    text_column("last_outcome", null=True),
    text_column("created_by", null=True),
    integer_column("created_ms"),
    integer_column("updated_ms"),
    CheckConstraint(f"slot >= 0 AND slot < {SLOTS_PER_DEVICE}", name="slot_range"),
    one_of_check("status", [status.value for status in ScheduleStatus]),
    one_of_check("misfire", [misfire.value for misfire in MisfirePolicy]),
    one_of_check("next_edge", [edge.value for edge in SwitchEdge]),
    Index("uq_schedules__slot", "device_id", "slot", unique=True, sqlite_where=LIVE, info=on_postgres(where=LIVE)),
    Index("ix_schedules__history", "device_id", "updated_ms", "seq", sqlite_where=ENDED, info=on_postgres(where=ENDED)),
    Index("ix_schedules__ended", "updated_ms", sqlite_where=ENDED, info=on_postgres(where=ENDED)),
    Index("ix_schedules__due", "next_fire_ts", "seq", sqlite_where=WAITING_SQLITE, info=on_postgres(where=WAITING_POSTGRES)),
)

schedule_edges = Table(
    "schedule_edges",
    metadata,
    Column("schedule_id", Text, ForeignKey("schedules.schedule_id", ondelete="CASCADE"), primary_key=True),
    Column("revision", Int64, primary_key=True, autoincrement=False),
    Column("edge", Text, primary_key=True),
    Column("due_ts", Int64, primary_key=True, autoincrement=False),
    integer_column("at_ms"),
    text_column("outcome"),
    one_of_check("edge", [edge.value for edge in SwitchEdge]),
    sqlite_with_rowid=False,
)

left_edges = Table(
    "left_edges",
    metadata,
    Column("schedule_id", Text, ForeignKey("schedules.schedule_id", ondelete="CASCADE"), primary_key=True),
    Column("revision", Int64, primary_key=True, autoincrement=False),
    Column("edge", Text, primary_key=True),
    Column("due_ts", Int64, primary_key=True, autoincrement=False),
    foreign_key_column("device_id", "devices.device_id"),
    integer_column("plan_rev"),
    integer_column("next_ts", null=True),
    Column("holds_plan", Boolean),
    integer_column("resolve_ms", null=True),
    one_of_check("edge", [edge.value for edge in SwitchEdge]),
    Index(None, "device_id"),
    sqlite_with_rowid=False,
)
"""Edges of offline devices that hold their plan, until they are resolved."""

rules = Table(
    "rules",
    metadata,
    autoincrement_key("rule_no"),
    text_column("rule_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("device_id", "devices.device_id"),
    integer_column("device_no"),
    text_column("name"),
    text_column("conditions"),
    text_column("action"),
    Column("enabled", Boolean, nullable=False),
    integer_column("priority"),
    text_column("match"),
    text_column("clear_conditions"),
    integer_column("for_seconds"),
    integer_column("cooldown_seconds"),
    text_column("created_by", null=True),
    Column("matched", Boolean, nullable=False),
    integer_column("held_since_ms", null=True),
    integer_column("last_fired_ms", null=True),
    text_column("disabled_reason", null=True),
    integer_column("created_at"),
    integer_column("revision"),
    one_of_check("match", [match.value for match in MatchMode]),
    Index(None, "device_id", "priority", "rule_no"),
    sqlite_autoincrement=True,
)
Index(
    "ix_rules__enabled",
    rules.c.device_no,
    rules.c.priority,
    rules.c.rule_no,
    sqlite_where=rules.c.enabled == text("1"),
    info=on_postgres(where=rules.c.enabled),
)
