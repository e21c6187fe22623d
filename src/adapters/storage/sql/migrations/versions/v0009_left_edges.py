"""Edges that are left to offline devices, until the devices confirm them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "left_edges",
        sa.Column("schedule_id", sa.Text(), nullable=False),
        sa.Column("revision", NUMBER, autoincrement=False, nullable=False),
        sa.Column("edge", sa.Text(), nullable=False),
        sa.Column("due_ts", NUMBER, autoincrement=False, nullable=False),
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("plan_rev", NUMBER, nullable=False),
        sa.Column("next_ts", NUMBER, nullable=True),
        sa.Column("holds_plan", sa.Boolean(), nullable=True),
        sa.Column("resolve_ms", NUMBER, nullable=True),
        sa.CheckConstraint("edge IN ('on', 'off')", name="edge_known"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], name="fk_left_edges__device_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.schedule_id"], name="fk_left_edges__schedule_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("schedule_id", "revision", "edge", "due_ts", name="pk_left_edges"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_left_edges__device_id", "left_edges", ["device_id"], unique=False)
