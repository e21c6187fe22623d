"""The store time of readings, and late uploads: what a feed client missed is read from the stored readings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "reading_store_time",
        sa.Column("row_id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("store_time_s", NUMBER, nullable=False),
        sa.Column("marks_since_s", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("row_id", name="pk_reading_store_time"),
    )
    op.create_table(
        "late_readings",
        sa.Column("device_no", NUMBER, autoincrement=False, nullable=False),
        sa.Column("stored_minute", NUMBER, autoincrement=False, nullable=False),
        sa.Column("from_ms", NUMBER, nullable=False),
        sa.Column("until_ms", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("device_no", "stored_minute", name="pk_late_readings"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_late_readings__stored_minute", "late_readings", ["stored_minute"], unique=False)
