"""The users' own ids of devices."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column("devices", sa.Column("external_id", sa.Text(), nullable=True))
    op.create_index("uq_devices__external_id", "devices", ["account_id", "external_id"], unique=True)
