"""Invitations to an account."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "invitations",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("invitation_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("invited_by", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=False),
        sa.Column("mailed", sa.Boolean(), nullable=False),
        sa.CheckConstraint("role IN ('Owner', 'Admin', 'Member', 'Viewer')", name=op.f("ck_invitations__role_known")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_invitations__account_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_invitations"),
        sa.UniqueConstraint("invitation_id", name="uq_invitations__invitation_id"),
        sa.UniqueConstraint("token_hash", name="uq_invitations__token_hash"),
        sa.UniqueConstraint("account_id", "email", name="uq_invitations__account_id_email"),
    )
    op.create_index("ix_invitations__account_id_seq", "invitations", ["account_id", "seq"], unique=False)
    op.create_index("ix_invitations__expires_ms", "invitations", ["expires_ms"], unique=False)
