"""Executions, schedules, grants and approvals, as revision 0001 created them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from adapters.storage.sql.migrations.revision_0001 import NUMBER, create_partial_index


def create() -> None:
    executions()
    schedules()
    schedule_edges()
    grants()
    grant_uses()
    approvals()


def executions() -> None:
    op.create_table(
        "executions",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("execution_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("device_no", NUMBER, nullable=False),
        sa.Column("cmd", sa.Text(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("grant_id", sa.Text(), nullable=True),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=False),
        sa.Column("sent_ms", NUMBER, nullable=True),
        sa.Column("finished_ms", NUMBER, nullable=True),
        sa.Column("result", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "source IN ('device', 'user', 'apikey', 'schedule', 'rule')", name=op.f("ck_executions__source_known")
        ),
        sa.CheckConstraint(
            "status IN ('QUEUED', 'SENT', 'ACKED', 'DONE', 'FAILED', 'TIMED_OUT', 'EXPIRED')",
            name=op.f("ck_executions__status_known"),
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_executions__account_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], name="fk_executions__device_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_executions"),
        sa.UniqueConstraint("execution_id", name="uq_executions__execution_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_executions__device_id_seq", "executions", ["device_id", "seq"], unique=False)
    create_partial_index("ix_executions__expiry", "executions", ["expires_ms", "seq"], "status IN ('QUEUED', 'SENT', 'ACKED')")
    create_partial_index(
        "ix_executions__finished", "executions", ["created_ms"], "status IN ('DONE', 'FAILED', 'TIMED_OUT', 'EXPIRED')"
    )
    create_partial_index("ix_executions__open", "executions", ["device_id", "seq"], "status IN ('QUEUED', 'SENT')")
    create_partial_index("ix_executions__queued", "executions", ["seq"], "status = 'QUEUED'")


def schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("schedule_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("device_no", NUMBER, nullable=False),
        sa.Column("slot", NUMBER, nullable=False),
        sa.Column("on_ts", NUMBER, nullable=False),
        sa.Column("off_ts", NUMBER, nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("on_command", sa.Text(), nullable=False),
        sa.Column("off_command", sa.Text(), nullable=False),
        sa.Column("rrule", sa.Text(), nullable=True),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("misfire", sa.Text(), nullable=False),
        sa.Column("misfire_grace_s", NUMBER, nullable=False),
        sa.Column("revision", NUMBER, nullable=False),
        sa.Column("next_fire_ts", NUMBER, nullable=True),
        sa.Column("next_edge", sa.Text(), nullable=True),
        sa.Column("last_fired_ms", NUMBER, nullable=True),
        sa.Column("last_outcome", sa.Text(), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("updated_ms", NUMBER, nullable=False),
        sa.CheckConstraint("misfire IN ('FIRE', 'SKIP')", name=op.f("ck_schedules__misfire_known")),
        sa.CheckConstraint("next_edge IN ('on', 'off')", name=op.f("ck_schedules__next_edge_known")),
        sa.CheckConstraint("status IN ('PENDING', 'ACTIVE', 'COMPLETED', 'CANCELLED')", name=op.f("ck_schedules__status_known")),
        sa.CheckConstraint("slot >= 0 AND slot < 5", name=op.f("ck_schedules__slot_range")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_schedules__account_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], name="fk_schedules__device_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_schedules"),
        sa.UniqueConstraint("schedule_id", name="uq_schedules__schedule_id"),
    )
    create_partial_index(
        "ix_schedules__due",
        "schedules",
        ["next_fire_ts", "seq"],
        "enabled AND status IN ('PENDING', 'ACTIVE')",
        on_sqlite="enabled = 1 AND status IN ('PENDING', 'ACTIVE')",
    )
    create_partial_index("ix_schedules__ended", "schedules", ["updated_ms"], "status IN ('COMPLETED', 'CANCELLED')")
    create_partial_index(
        "ix_schedules__history", "schedules", ["device_id", "updated_ms", "seq"], "status IN ('COMPLETED', 'CANCELLED')"
    )
    create_partial_index("uq_schedules__slot", "schedules", ["device_id", "slot"], "status IN ('PENDING', 'ACTIVE')", unique=True)


def schedule_edges() -> None:
    op.create_table(
        "schedule_edges",
        sa.Column("schedule_id", sa.Text(), nullable=False),
        sa.Column("revision", NUMBER, autoincrement=False, nullable=False),
        sa.Column("edge", sa.Text(), nullable=False),
        sa.Column("due_ts", NUMBER, autoincrement=False, nullable=False),
        sa.Column("at_ms", NUMBER, nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.CheckConstraint("edge IN ('on', 'off')", name=op.f("ck_schedule_edges__edge_known")),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.schedule_id"], name="fk_schedule_edges__schedule_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("schedule_id", "revision", "edge", "due_ts", name="pk_schedule_edges"),
        sqlite_with_rowid=False,
    )


def grants() -> None:
    op.create_table(
        "grants",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("grant_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("membership_id", sa.Text(), nullable=True),
        sa.Column("device_id", sa.Text(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("commands", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=True),
        sa.Column("active_days", sa.Text(), nullable=False),
        sa.Column("from_minute", NUMBER, nullable=True),
        sa.Column("to_minute", NUMBER, nullable=True),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("rate_limit_per_minute", NUMBER, nullable=True),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.CheckConstraint("scope IN ('READ', 'WRITE', 'FULL')", name=op.f("ck_grants__scope_known")),
        sa.CheckConstraint("(key_id IS NULL) <> (membership_id IS NULL)", name=op.f("ck_grants__one_subject")),
        sa.CheckConstraint("device_id IS NOT NULL OR project_id IS NOT NULL", name=op.f("ck_grants__some_place")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_grants__account_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], name="fk_grants__device_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.key_id"], name="fk_grants__key_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["membership_id"], ["memberships.membership_id"], name="fk_grants__membership_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.project_id"], name="fk_grants__project_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_grants"),
        sa.UniqueConstraint("grant_id", name="uq_grants__grant_id"),
    )
    op.create_index("ix_grants__device_id_seq", "grants", ["device_id", "seq"], unique=False)
    op.create_index("ix_grants__key_id_seq", "grants", ["key_id", "seq"], unique=False)
    op.create_index("ix_grants__membership_id_seq", "grants", ["membership_id", "seq"], unique=False)
    op.create_index("ix_grants__project_id_seq", "grants", ["project_id", "seq"], unique=False)


def grant_uses() -> None:
    op.create_table(
        "grant_uses",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("grant_id", sa.Text(), nullable=False),
        sa.Column("at_ms", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["grant_id"], ["grants.grant_id"], name="fk_grant_uses__grant_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_grant_uses"),
    )
    op.create_index("ix_grant_uses__at_ms", "grant_uses", ["at_ms"], unique=False)
    op.create_index("ix_grant_uses__grant_id_at_ms", "grant_uses", ["grant_id", "at_ms"], unique=False)


def approvals() -> None:
    op.create_table(
        "approvals",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("approval_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("cmd", sa.Text(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("ttl_ms", NUMBER, nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("requester_name", sa.Text(), nullable=False),
        sa.Column("requester_key_id", sa.Text(), nullable=True),
        sa.Column("requester_membership_id", sa.Text(), nullable=True),
        sa.Column("requester_user_id", sa.Text(), nullable=True),
        sa.Column("grant_id", sa.Text(), nullable=True),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("decided_ms", NUMBER, nullable=True),
        sa.Column("execution_id", sa.Text(), nullable=True),
        sa.CheckConstraint("status IN ('PENDING', 'APPROVED', 'DENIED', 'EXPIRED')", name=op.f("ck_approvals__status_known")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_approvals__account_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], name="fk_approvals__device_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_approvals"),
        sa.UniqueConstraint("approval_id", name="uq_approvals__approval_id"),
    )
    op.create_index("ix_approvals__account_id_seq", "approvals", ["account_id", "seq"], unique=False)
    op.create_index("ix_approvals__account_id_status_seq", "approvals", ["account_id", "status", "seq"], unique=False)
    op.create_index("ix_approvals__device_id_seq", "approvals", ["device_id", "seq"], unique=False)
    create_partial_index("ix_approvals__expiry", "approvals", ["expires_ms", "seq"], "status = 'PENDING'")
