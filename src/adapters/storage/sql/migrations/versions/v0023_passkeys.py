"""Passkeys, and the challenges that were used and have not expired."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "passkeys",
        sa.Column("passkey_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("credential_id", sa.LargeBinary(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("sign_count", NUMBER, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("transports", sa.Text(), nullable=False),
        sa.Column("is_synced", sa.Boolean(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("last_used_ms", NUMBER, nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"], name="fk_passkeys__user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("passkey_id", name="pk_passkeys"),
    )
    op.create_index("ix_passkeys__user_id", "passkeys", ["user_id"])
    op.create_index("ix_passkeys__credential_id", "passkeys", ["credential_id"], unique=True)
    op.create_table(
        "used_passkey_challenges",
        sa.Column("challenge_hash", sa.LargeBinary(), nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("challenge_hash", name="pk_used_passkey_challenges"),
    )
    op.create_index("ix_used_passkey_challenges__expires_ms", "used_passkey_challenges", ["expires_ms"])
