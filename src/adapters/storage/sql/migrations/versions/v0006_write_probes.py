"""A table with one row, which the readiness check rewrites to prove that the database can write."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "write_probes",
        sa.Column("probe_id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("padding", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("probe_id", name="pk_write_probes"),
    )
