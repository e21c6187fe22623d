"""How each member of a cluster reaches the log: 0 not, 1 again since a moment, 2 steadily. An older instance does not say."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("members", sa.Column("log_reach", NUMBER, nullable=False, server_default="2"))
