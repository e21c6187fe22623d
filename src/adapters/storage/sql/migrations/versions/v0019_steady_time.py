"""Steady time: what leases and the pauses before retries are stored in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "steady_time",
        sa.Column("row_id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("steady_ms", NUMBER, nullable=False),
        sa.Column("wall_ms", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("row_id", name="pk_steady_time"),
    )
