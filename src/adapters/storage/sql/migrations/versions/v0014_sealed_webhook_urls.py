"""Webhook URLs are stored sealed. What was `url` holds only scheme and host, once the service has sealed the rest at its start.

The column is renamed, so that no older version can write a plain URL into it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.execute("ALTER TABLE webhooks RENAME COLUMN url TO origin")
    op.add_column("webhooks", sa.Column("sealed_url", sa.LargeBinary(), nullable=True))
