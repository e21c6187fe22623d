"""Webhook URLs are stored sealed. What was `url` holds only scheme and host, once the service has sealed the rest at its start.

The column is renamed, so that no older version can write a plain URL into it.

Revision: 0013, after 0012.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE webhooks RENAME COLUMN url TO origin")
    op.add_column("webhooks", sa.Column("sealed_url", sa.LargeBinary(), nullable=True))
