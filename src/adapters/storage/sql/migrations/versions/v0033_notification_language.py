"""The language of a member's notifications."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    op.add_column("notification_settings", sa.Column("language", sa.Text(), nullable=False, server_default="en"))
