"""Devices, what they can do, and what acts on them by itself."""

from __future__ import annotations

from sqlalchemy import Boolean, CheckConstraint, Column, ForeignKey, Index, LargeBinary, Table, Text, UniqueConstraint, text

from adapters.storage.sql.tables.columns import Number, belongs, counter, metadata, number, one_of, quoted, words
from domain.commands.model import CommandKind, ExecutionStatus, Shape, TriggeredBy
from domain.devices.model import DeviceStatus, Profile
from domain.rules.model import Match
from domain.schedules.model import SLOTS, Edge, Misfire, ScheduleStatus

device_types = Table(
    "device_types",
    metadata,
    counter("seq"),
    words("device_type_id", unique=True),
    belongs("account_id", "accounts.account_id"),
    words("name"),
    number("created_ms"),
    Index(None, "account_id", "seq"),
)

devices = Table(
    "devices",
    metadata,
    counter("device_no"),
    words("device_id", unique=True),
    belongs("account_id", "accounts.account_id"),
    belongs("project_id", "projects.project_id", ondelete="RESTRICT"),
    words("name"),
    words("board_type"),
    words("app_type"),
    words("app_type_other", null=True),
    words("status"),
    words("profile"),
    belongs("device_type_id", "device_types.device_type_id", null=True, ondelete="SET NULL"),
    words("description", null=True),
    words("location", null=True),
    words("manufacturer", null=True),
    words("model", null=True),
    words("industry", null=True),
    words("tags"),
    number("created_ms"),
    number("version"),
    Column("relay", Boolean),
    Column("is_online", Boolean, nullable=False),
    number("last_seen_ms", null=True),
    number("sched_rev"),
    number("sched_rev_device", null=True),
    one_of("status", [status.value for status in DeviceStatus]),
    one_of("profile", [profile.value for profile in Profile]),
    Index(None, "account_id", "device_no"),
    Index(None, "project_id", "device_no"),
    Index(None, "device_type_id"),
    sqlite_autoincrement=True,
)
Index(
    "ix_devices__online",
    devices.c.device_no,
    sqlite_where=devices.c.is_online == text("1"),
    postgresql_where=devices.c.is_online,
)

credentials = Table(
    "credentials",
    metadata,
    Column("device_id", Text, ForeignKey("devices.device_id", ondelete="CASCADE"), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    number("created_ms"),
)

definitions = Table(
    "definitions",
    metadata,
    counter("seq"),
    words("command_id", unique=True),
    belongs("account_id", "accounts.account_id"),
    belongs("device_id", "devices.device_id", null=True),
    belongs("device_type_id", "device_types.device_type_id", null=True),
    words("name"),
    words("label"),
    words("description", null=True),
    words("kind"),
    words("params_schema", null=True),
    words("shape"),
    Column("requires_approval", Boolean, nullable=False),
    number("created_ms"),
    UniqueConstraint("device_id", "name"),
    UniqueConstraint("device_type_id", "name"),
    CheckConstraint("(device_id IS NULL) <> (device_type_id IS NULL)", name="one_place"),
    one_of("kind", [kind.value for kind in CommandKind]),
    one_of("shape", [shape.value for shape in Shape]),
)

OPEN = text(f"status IN ({quoted([ExecutionStatus.QUEUED.value, ExecutionStatus.SENT.value])})")
UNFINISHED = text(f"status IN ({quoted(s.value for s in ExecutionStatus if not s.is_final)})")
FINISHED = text(f"status IN ({quoted(s.value for s in ExecutionStatus if s.is_final)})")
QUEUED = text("status = 'QUEUED'")

executions = Table(
    "executions",
    metadata,
    counter("seq"),
    words("execution_id", unique=True),
    belongs("account_id", "accounts.account_id"),
    belongs("device_id", "devices.device_id"),
    number("device_no"),
    words("cmd"),
    words("params"),
    words("status"),
    words("source"),
    words("requested_by"),
    words("grant_id", null=True),
    number("created_ms"),
    number("expires_ms"),
    number("sent_ms", null=True),
    number("finished_ms", null=True),
    words("result"),
    one_of("status", [status.value for status in ExecutionStatus]),
    one_of("source", [source.value for source in TriggeredBy]),
    Index(None, "device_id", "seq"),
    Index("ix_executions__queued", "seq", sqlite_where=QUEUED, postgresql_where=QUEUED),
    Index("ix_executions__open", "device_id", "seq", sqlite_where=OPEN, postgresql_where=OPEN),
    Index("ix_executions__expiry", "expires_ms", "seq", sqlite_where=UNFINISHED, postgresql_where=UNFINISHED),
    Index("ix_executions__finished", "created_ms", sqlite_where=FINISHED, postgresql_where=FINISHED),
    sqlite_autoincrement=True,
)

LIVE = text(f"status IN ({quoted([ScheduleStatus.PENDING.value, ScheduleStatus.ACTIVE.value])})")
ENDED = text(f"status IN ({quoted([ScheduleStatus.COMPLETED.value, ScheduleStatus.CANCELLED.value])})")
WAITING_SQLITE = text(f"enabled = 1 AND {LIVE.text}")
WAITING_POSTGRES = text(f"enabled AND {LIVE.text}")

schedules = Table(
    "schedules",
    metadata,
    counter("seq"),
    words("schedule_id", unique=True),
    belongs("account_id", "accounts.account_id"),
    belongs("device_id", "devices.device_id"),
    number("device_no"),
    number("slot"),
    number("on_ts"),
    number("off_ts"),
    words("label"),
    Column("enabled", Boolean, nullable=False),
    words("status"),
    words("on_command"),
    words("off_command"),
    words("rrule", null=True),
    words("timezone"),
    words("misfire"),
    number("misfire_grace_s"),
    number("revision"),
    number("next_fire_ts", null=True),
    words("next_edge", null=True),
    number("last_fired_ms", null=True),
    words("last_outcome", null=True),
    words("created_by", null=True),
    number("created_ms"),
    number("updated_ms"),
    CheckConstraint(f"slot >= 0 AND slot < {SLOTS}", name="slot_range"),
    one_of("status", [status.value for status in ScheduleStatus]),
    one_of("misfire", [misfire.value for misfire in Misfire]),
    one_of("next_edge", [edge.value for edge in Edge]),
    Index("uq_schedules__slot", "device_id", "slot", unique=True, sqlite_where=LIVE, postgresql_where=LIVE),
    Index("ix_schedules__history", "device_id", "updated_ms", "seq", sqlite_where=ENDED, postgresql_where=ENDED),
    Index("ix_schedules__ended", "updated_ms", sqlite_where=ENDED, postgresql_where=ENDED),
    Index("ix_schedules__due", "next_fire_ts", "seq", sqlite_where=WAITING_SQLITE, postgresql_where=WAITING_POSTGRES),
)

schedule_edges = Table(
    "schedule_edges",
    metadata,
    Column("schedule_id", Text, ForeignKey("schedules.schedule_id", ondelete="CASCADE"), primary_key=True),
    Column("revision", Number, primary_key=True, autoincrement=False),
    Column("edge", Text, primary_key=True),
    Column("due_ts", Number, primary_key=True, autoincrement=False),
    number("at_ms"),
    words("outcome"),
    one_of("edge", [edge.value for edge in Edge]),
    sqlite_with_rowid=False,
)

rules = Table(
    "rules",
    metadata,
    counter("rule_no"),
    words("rule_id", unique=True),
    belongs("account_id", "accounts.account_id"),
    belongs("device_id", "devices.device_id"),
    number("device_no"),
    words("name"),
    words("conditions"),
    words("action"),
    Column("enabled", Boolean, nullable=False),
    number("priority"),
    words("match"),
    words("clear_conditions"),
    number("for_seconds"),
    number("cooldown_seconds"),
    words("created_by", null=True),
    Column("matched", Boolean, nullable=False),
    number("held_since_ms", null=True),
    number("last_fired_ms", null=True),
    words("disabled_reason", null=True),
    number("created_at"),
    number("revision"),
    one_of("match", [match.value for match in Match]),
    Index(None, "device_id", "priority", "rule_no"),
    sqlite_autoincrement=True,
)
Index(
    "ix_rules__enabled",
    rules.c.device_no,
    rules.c.priority,
    rules.c.rule_no,
    sqlite_where=rules.c.enabled == text("1"),
    postgresql_where=rules.c.enabled,
)
