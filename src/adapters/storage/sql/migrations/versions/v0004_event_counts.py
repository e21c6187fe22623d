"""Event counts per kind and device, so that a filtered total adds up few numbers; and an index for both filters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "event_counts",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("total", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_event_counts__account_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("account_id", "kind", "device_id", name="pk_event_counts"),
    )
    op.create_index("ix_event_counts__account_id_device_id", "event_counts", ["account_id", "device_id"], unique=False)
    op.create_index("ix_events__device_id_kind_position", "events", ["device_id", "kind", "position"], unique=False)
    op.execute(
        "INSERT INTO event_counts (account_id, device_id, kind, total) "
        "SELECT account_id, COALESCE(device_id, ''), kind, COUNT(*) FROM events "
        "GROUP BY account_id, COALESCE(device_id, ''), kind"
    )
