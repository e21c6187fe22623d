"""Schedules, the edges that they have fired, what offline devices missed, and rules."""

from __future__ import annotations

from sqlalchemy import Boolean, CheckConstraint, Column, ForeignKey, Index, Table, Text, text

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
from domain.rules.model import MatchMode
from domain.schedules.model import SLOTS_PER_DEVICE, MisfirePolicy, ScheduleStatus, SwitchEdge

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
    partial_index("ix_rules__enabled", "device_no", "priority", "rule_no", where=text("enabled"), on_sqlite=text("enabled = 1")),
    sqlite_autoincrement=True,
)
