"""Links that let a browser sign in while strangers guess the password."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "unlock_links",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("issued_ms", NUMBER, nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=False),
        sa.Column("used", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"], name="fk_unlock_links__user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", name="pk_unlock_links"),
        sa.UniqueConstraint("token_hash", name="uq_unlock_links__token_hash"),
    )
