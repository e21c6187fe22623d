"""When a service session was last used, and which service session asked for an approval."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("service_sessions", sa.Column("last_used_ms", NUMBER, nullable=True))
    op.add_column("approvals", sa.Column("requester_session_id", sa.Text(), nullable=True))
