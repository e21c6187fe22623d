"""The form of a webhook's requests: the service's envelope, or CloudEvents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.add_column("webhooks", sa.Column("format", sa.Text(), nullable=False, server_default=sa.text("'standard'")))
