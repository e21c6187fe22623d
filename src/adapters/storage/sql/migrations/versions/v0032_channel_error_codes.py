"""Why a channel did not take a notification, as a code that the page translates."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.add_column("notification_channels", sa.Column("last_error_code", sa.Text(), nullable=True))
