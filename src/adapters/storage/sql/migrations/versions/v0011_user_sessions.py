"""A row for each sign-in. Those of older versions get one without address and program; their refresh tokens stay valid."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ADD_SESSIONS = """
INSERT INTO user_sessions
  (session_id, user_id, membership_id, created_ms, last_used_ms, expires_ms, address, user_agent, revoked_ms)
SELECT family, min(user_id), min(membership_id), min(issued_ms), max(issued_ms), max(expires_ms), '', '', max(revoked_ms)
FROM refresh_tokens GROUP BY family
"""


def upgrade() -> None:
    op.create_table(
        "user_sessions",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("membership_id", sa.Text(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("last_used_ms", NUMBER, nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("user_agent", sa.Text(), nullable=False),
        sa.Column("signed_out_ms", NUMBER, nullable=True),
        sa.Column("revoked_ms", NUMBER, nullable=True),
        sa.ForeignKeyConstraint(
            ["membership_id"], ["memberships.membership_id"], name="fk_user_sessions__membership_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"], name="fk_user_sessions__user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id", name="pk_user_sessions"),
    )
    op.create_index("ix_user_sessions__user_id_last_used_ms", "user_sessions", ["user_id", "last_used_ms"], unique=False)
    op.create_index("ix_user_sessions__membership_id", "user_sessions", ["membership_id"], unique=False)
    op.create_index("ix_user_sessions__expires_ms", "user_sessions", ["expires_ms"], unique=False)
    op.execute(ADD_SESSIONS)
