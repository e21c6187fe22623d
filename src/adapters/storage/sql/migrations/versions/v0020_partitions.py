"""Tables of a cluster: partitions, members, and the connections of devices."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "partitions",
        sa.Column("part", NUMBER, autoincrement=False, nullable=False),
        sa.Column("epoch", NUMBER, nullable=False),
        sa.Column("position", NUMBER, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("log_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("part", name="pk_partitions"),
    )
    op.create_table(
        "members",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("beats", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("instance", name="pk_members"),
    )
    op.create_table(
        "device_sessions",
        sa.Column("device_no", NUMBER, autoincrement=False, nullable=False),
        sa.Column("front", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("device_no", name="pk_device_sessions"),
    )
    op.create_index("ix_device_sessions__front", "device_sessions", ["front"], unique=False)
