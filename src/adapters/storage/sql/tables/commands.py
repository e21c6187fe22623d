"""Definitions of commands, and executions."""

from __future__ import annotations

from sqlalchemy import Boolean, CheckConstraint, Column, Index, Table, UniqueConstraint, text

from adapters.storage.sql.tables.columns import (
    autoincrement_key,
    foreign_key_column,
    integer_column,
    metadata,
    one_of_check,
    partial_index,
    sql_literals,
    text_column,
)
from domain.commands.model import CommandKind, CommandWidget, ExecutionStatus, TriggeredBy

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
    partial_index("ix_executions__queued", "seq", where=QUEUED),
    partial_index("ix_executions__open", "device_id", "seq", where=OPEN),
    partial_index("ix_executions__expiry", "expires_ms", "seq", where=UNFINISHED),
    partial_index("ix_executions__finished", "created_ms", where=FINISHED),
    sqlite_autoincrement=True,
)
