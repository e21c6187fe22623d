"""Definitions of commands, and executions.

Grants, their uses, and approvals.

Schedules, the edges that they have fired, what offline devices missed, and rules.
"""

from __future__ import annotations

from sqlalchemy import Boolean, CheckConstraint, Column, ForeignKey, Index, Table, Text, UniqueConstraint, text

from adapters.storage.sql.tables.columns import (
    Int64,
    autoincrement_key,
    foreign_key_column,
    integer_column,
    metadata,
    one_of_check,
    partial_index,
    sql_literals,
    text_column,
)
from domain.approvals.model import ApprovalStatus
from domain.commands.model import CommandKind, CommandWidget, ExecutionStatus, TriggeredBy
from domain.grants.model import Scope
from domain.rules.model import MatchMode
from domain.schedules.model import SLOTS_PER_DEVICE, MisfirePolicy, ScheduleStatus, SwitchEdge

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
    text_column("channels", null=True),
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
    text_column("key_id", null=True),
    text_column("membership_id", null=True),
    text_column("session_id", null=True),
    integer_column("channel"),
    one_of_check("status", [status.value for status in ExecutionStatus]),
    one_of_check("source", [source.value for source in TriggeredBy]),
    Index(None, "device_id", "created_ms", "seq"),
    partial_index("ix_executions__queued", "seq", where=QUEUED),
    partial_index("ix_executions__open", "device_id", "seq", where=OPEN),
    partial_index("ix_executions__expiry", "expires_ms", "seq", where=UNFINISHED),
    partial_index("ix_executions__finished", "created_ms", where=FINISHED),
    sqlite_autoincrement=True,
)


grants = Table(
    "grants",
    metadata,
    autoincrement_key("seq"),
    text_column("grant_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("key_id", "api_keys.key_id", null=True),
    foreign_key_column("membership_id", "memberships.membership_id", null=True),
    foreign_key_column("device_id", "devices.device_id", null=True),
    foreign_key_column("project_id", "projects.project_id", null=True),
    text_column("commands"),
    text_column("scope"),
    integer_column("expires_ms", null=True),
    text_column("active_days"),
    integer_column("from_minute", null=True),
    integer_column("to_minute", null=True),
    text_column("timezone"),
    integer_column("rate_limit_per_minute", null=True),
    integer_column("created_ms"),
    text_column("created_by"),
    text_column("changed_by", null=True),
    text_column("group_id", null=True),
    text_column("channels", null=True),
    CheckConstraint("(key_id IS NULL) <> (membership_id IS NULL)", name="one_subject"),
    CheckConstraint("device_id IS NOT NULL OR project_id IS NOT NULL", name="some_place"),
    one_of_check("scope", [scope.value for scope in Scope]),
    Index(None, "key_id", "seq"),
    Index(None, "membership_id", "seq"),
    Index(None, "device_id", "seq"),
    Index(None, "project_id", "seq"),
    Index(None, "group_id", "seq"),
)

grant_uses = Table(
    "grant_uses",
    metadata,
    autoincrement_key("seq"),
    foreign_key_column("grant_id", "grants.grant_id"),
    integer_column("at_ms"),
    Index(None, "grant_id", "at_ms"),
    Index(None, "at_ms"),
)

PENDING_APPROVAL = text("status = 'PENDING'")

approvals = Table(
    "approvals",
    metadata,
    autoincrement_key("seq"),
    text_column("approval_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("device_id", "devices.device_id"),
    text_column("cmd"),
    text_column("params"),
    integer_column("ttl_ms"),
    text_column("status"),
    text_column("requester_name"),
    text_column("requester_key_id", null=True),
    text_column("requester_membership_id", null=True),
    text_column("requester_user_id", null=True),
    text_column("grant_id", null=True),
    integer_column("created_ms"),
    integer_column("expires_ms"),
    text_column("decided_by", null=True),
    integer_column("decided_ms", null=True),
    text_column("execution_id", null=True),
    text_column("reason", null=True),
    text_column("note", null=True),
    text_column("requester_session_id", null=True),
    integer_column("channel"),
    one_of_check("status", [status.value for status in ApprovalStatus]),
    Index(None, "account_id", "created_ms", "seq"),
    Index(None, "account_id", "status", "created_ms", "seq"),
    Index(None, "device_id", "created_ms", "seq"),
    partial_index("ix_approvals__expiry", "expires_ms", "seq", where=PENDING_APPROVAL),
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
    Column("withdrawn", Boolean, nullable=False),
    CheckConstraint(f"slot >= 0 AND slot < {SLOTS_PER_DEVICE}", name="slot_range"),
    one_of_check("status", [status.value for status in ScheduleStatus]),
    one_of_check("misfire", [misfire.value for misfire in MisfirePolicy]),
    one_of_check("next_edge", [edge.value for edge in SwitchEdge]),
    partial_index("uq_schedules__slot", "device_id", "slot", unique=True, where=LIVE),
    partial_index("ix_schedules__history", "device_id", "updated_ms", "seq", where=ENDED),
    partial_index("ix_schedules__ended", "updated_ms", where=ENDED),
    partial_index("ix_schedules__due", "next_fire_ts", "seq", where=WAITING_POSTGRES, on_sqlite=WAITING_SQLITE),
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
    integer_column("channel"),
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
    integer_column("created_ms"),
    integer_column("revision"),
    one_of_check("match", [match.value for match in MatchMode]),
    Index(None, "device_id", "priority", "rule_no"),
    partial_index("ix_rules__enabled", "device_no", "priority", "rule_no", where=text("enabled"), on_sqlite=text("enabled = 1")),
    sqlite_autoincrement=True,
)
