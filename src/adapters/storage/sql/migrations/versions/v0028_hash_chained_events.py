"""The event log as hash chains with signed seals (decision 0023).

Events that are stored already stay unlinked: their sequence is 0, and the chain of an account begins with its next event.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, NUMBER, nullable=False, server_default=sa.text("0"))


def _hash() -> sa.Column[str]:
    return sa.Column("hash", sa.Text(), nullable=False, server_default=sa.text("''"))


def upgrade() -> None:
    for column in (_number("sequence"), _hash()):
        op.add_column("events", column)
    for column in (_number("sequence"), _number("position"), _hash()):
        op.add_column("event_totals", column)
    op.create_table(
        "audit_seals",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("sealed_ms", NUMBER, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("purged", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_audit_seals__account_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("account_id", "number", name="pk_audit_seals"),
    )
    op.create_index("ix_audit_seals__sealed_ms", "audit_seals", ["sealed_ms"], unique=False)
    op.create_table(
        "audit_rounds",
        sa.Column("sealed_ms", NUMBER, nullable=False),
        sa.Column("log", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sealed_ms", name="pk_audit_rounds"),
    )
