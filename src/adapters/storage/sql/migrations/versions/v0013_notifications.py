"""What members want to be told by mail, and the mails that are owed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "notification_settings",
        sa.Column("membership_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("topics", sa.Text(), nullable=False),
        sa.Column("offline_minutes", NUMBER, nullable=False),
        sa.Column("quiet_from_minute", NUMBER, nullable=True),
        sa.Column("quiet_to_minute", NUMBER, nullable=True),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["membership_id"], ["memberships.membership_id"], name="fk_notification_settings__membership_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("membership_id", name="pk_notification_settings"),
    )
    op.create_index("ix_notification_settings__account_id", "notification_settings", ["account_id"])
    op.create_table(
        "notifications",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("membership_id", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("due_ms", NUMBER, nullable=False),
        sa.Column("attempt", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_notifications"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_notifications__due_ms", "notifications", ["due_ms"])
    op.create_index("ix_notifications__device_id", "notifications", ["device_id"])
