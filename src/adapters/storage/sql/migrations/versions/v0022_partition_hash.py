"""An instance of a cluster finds the devices of a partition that it takes over."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.create_index("ix_devices__partition_hash", "devices", [sa.text("((device_no * 2654435769) & 4294967295)")])
