"""What is known of a device's health, and what of its messages was dropped."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "device_health",
        sa.Column("device_no", NUMBER, autoincrement=False, nullable=False),
        sa.Column("connects", NUMBER, nullable=False),
        sa.Column("firmware", sa.Text(), nullable=True),
        sa.Column("max_packet_size", NUMBER, nullable=True),
        sa.Column("clock_offset_ms", NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("device_no", name="pk_device_health"),
    )
    op.create_table(
        "device_drops",
        sa.Column("device_no", NUMBER, autoincrement=False, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("unannounced", NUMBER, nullable=False),
        sa.Column("last_ms", NUMBER, nullable=False),
        sa.Column("announced_ms", NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("device_no", "reason", name="pk_device_drops"),
        sqlite_with_rowid=False,
    )
