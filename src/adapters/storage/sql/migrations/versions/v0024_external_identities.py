"""Identities of users at identity providers, the states of sign-ins that were used, and sessions that a provider began."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("user_sessions", sa.Column("ends_ms", NUMBER, nullable=True))
    op.add_column("user_sessions", sa.Column("provider_factor_ms", NUMBER, nullable=True))
    op.add_column("login_challenges", sa.Column("session_ends_ms", NUMBER, nullable=True))
    op.create_table(
        "external_identities",
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("last_used_ms", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"], name="fk_external_identities__user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("issuer", "subject", name="pk_external_identities"),
        sa.UniqueConstraint("user_id", "issuer", name="uq_external_identities__user_id_issuer"),
    )
    op.create_table(
        "used_sign_in_states",
        sa.Column("state_hash", sa.LargeBinary(), nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("state_hash", name="pk_used_sign_in_states"),
    )
    op.create_index("ix_used_sign_in_states__expires_ms", "used_sign_in_states", ["expires_ms"], unique=False)
