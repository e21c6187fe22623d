"""Topic and metric of the last message that was dropped for a reason."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    for name in ("topic", "metric"):
        op.add_column("device_drops", sa.Column(name, sa.Text(), nullable=True))
