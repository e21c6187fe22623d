"""Messages from devices that the database refused, kept with their bytes until they are replayed or deleted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "dead_letters",
        sa.Column("letter_id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("device_no", NUMBER, nullable=False),
        sa.Column("device_id", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("arrived_ms", NUMBER, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.CheckConstraint("state IN ('SET_ASIDE', 'REPLAY')", name="state_known"),
        sa.PrimaryKeyConstraint("letter_id", name="pk_dead_letters"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_dead_letters__state_letter_id", "dead_letters", ["state", "letter_id"], unique=False)
    op.create_index("ix_dead_letters__device_no", "dead_letters", ["device_no"], unique=False)
