"""Service sessions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
KEYS = (
    ("session_id", "user_sessions.session_id"),
    ("account_id", "accounts.account_id"),
    ("membership_id", "memberships.membership_id"),
)


def upgrade() -> None:
    op.create_table(
        "service_sessions",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("membership_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("operations", sa.Text(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=False),
        sa.CheckConstraint("role IN ('Owner', 'Admin', 'Member', 'Viewer')", name=op.f("ck_service_sessions__role_known")),
        *(
            sa.ForeignKeyConstraint([column], [target], name=f"fk_service_sessions__{column}", ondelete="CASCADE")
            for column, target in KEYS
        ),
        sa.PrimaryKeyConstraint("session_id", name="pk_service_sessions"),
        sa.UniqueConstraint("secret_hash", name="uq_service_sessions__secret_hash"),
    )
    op.create_index("ix_service_sessions__account_id_created_ms", "service_sessions", ["account_id", "created_ms"], unique=False)
    op.create_index("ix_service_sessions__membership_id", "service_sessions", ["membership_id"], unique=False)
