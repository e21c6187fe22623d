"""Authenticator apps, recovery codes, sign-ins that wait for a second factor, and when a session's user was last verified."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("user_sessions", sa.Column("verified_ms", NUMBER, nullable=True))
    op.create_table(
        "totp_secrets",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("confirmed_ms", NUMBER, nullable=True),
        sa.Column("last_step", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"], name="fk_totp_secrets__user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", name="pk_totp_secrets"),
    )
    op.create_table(
        "recovery_codes",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("code_hash", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"], name="fk_recovery_codes__user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", "code_hash", name="pk_recovery_codes"),
    )
    op.create_table(
        "login_challenges",
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("membership_id", sa.Text(), nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(
            ["membership_id"], ["memberships.membership_id"], name="fk_login_challenges__membership_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"], name="fk_login_challenges__user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("token_hash", name="pk_login_challenges"),
    )
    for column in ("user_id", "membership_id", "expires_ms"):
        op.create_index(f"ix_login_challenges__{column}", "login_challenges", [column], unique=False)
