"""The form of a webhook's requests: the service's envelope, or CloudEvents.

Revision: 0029, after 0028.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("webhooks", sa.Column("format", sa.Text(), nullable=False, server_default=sa.text("'standard'")))
