"""The language of a member's notifications.

Revision: 0033, after 0032.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("notification_settings", sa.Column("language", sa.Text(), nullable=False, server_default="en"))
