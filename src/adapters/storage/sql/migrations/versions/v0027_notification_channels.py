"""Channels of notifications: where each member is told. Who chose mails until now has a channel for mail."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
KEPT = ("topic", "device_id", "subject", "text", "due_ms", "attempt")
ADD_MAIL_CHANNELS = """
    INSERT INTO notification_channels (channel_id, membership_id, account_id, kind, name, target, created_ms)
    SELECT 'nch_' || substr(membership_id, 5), membership_id, account_id, 'mail', 'Mail', '', 0
    FROM notification_settings WHERE topics <> '[]'
"""


def upgrade() -> None:
    _create_channels()
    op.execute(ADD_MAIL_CHANNELS)
    _replace_notifications()
    op.create_table(
        "service_secrets",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_service_secrets"),
    )


def _create_channels() -> None:
    op.create_table(
        "notification_channels",
        sa.Column("channel_id", sa.Text(), nullable=False),
        sa.Column("membership_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("last_sent_ms", NUMBER, nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("last_error_ms", NUMBER, nullable=True),
        sa.ForeignKeyConstraint(
            ["membership_id"], ["memberships.membership_id"], name="fk_notification_channels__membership_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("channel_id", name="pk_notification_channels"),
    )
    op.create_index("ix_notification_channels__membership_id", "notification_channels", ["membership_id"])
    op.create_index("ix_notification_channels__account_id", "notification_channels", ["account_id"])


def _replace_notifications() -> None:
    """What is owed goes on to the mail channel of its member."""
    rows_before = op.get_bind().execute(sa.text(f"SELECT membership_id, {', '.join(KEPT)} FROM notifications ORDER BY seq")).all()  # noqa: S608 - constants
    op.drop_table("notifications")
    table = op.create_table(
        "notifications",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("channel_id", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=True),
        sa.Column("approval_id", sa.Text(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("due_ms", NUMBER, nullable=False),
        sa.Column("attempt", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_notifications"),
        sqlite_autoincrement=True,
    )
    for column in ("due_ms", "device_id", "channel_id"):
        op.create_index(f"ix_notifications__{column}", "notifications", [column])
    if rows_before:
        rows = [{"channel_id": f"nch_{member[4:]}"} | dict(zip(KEPT, rest, strict=True)) for member, *rest in rows_before]
        op.bulk_insert(table, rows)
