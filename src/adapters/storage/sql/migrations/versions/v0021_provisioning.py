"""Provisioning codes, and the claims that devices make with them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


CODE_KEYS = (
    ("account_id", "accounts.account_id", "CASCADE"),
    ("created_by", "memberships.membership_id", "CASCADE"),
    ("device_type_id", "device_types.device_type_id", "SET NULL"),
    ("project_id", "projects.project_id", "CASCADE"),
)


def upgrade() -> None:
    _create_codes()
    _create_claims()


def _create_codes() -> None:
    op.create_table(
        "provisioning_codes",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("code_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("code_hash", sa.LargeBinary(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("board_type", sa.Text(), nullable=False),
        sa.Column("app_type", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=True),
        sa.Column("device_type_id", sa.Text(), nullable=True),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("max_devices", NUMBER, nullable=False),
        sa.Column("claimed_count", NUMBER, nullable=False),
        sa.Column("requires_approval", sa.Boolean(), nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.CheckConstraint(
            "profile IN ('native', 'tasmota', 'esphome', 'shelly')", name=op.f("ck_provisioning_codes__profile_known")
        ),
        *(
            sa.ForeignKeyConstraint([column], [target], name=f"fk_provisioning_codes__{column}", ondelete=rule)
            for column, target, rule in CODE_KEYS
        ),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_provisioning_codes")),
        sa.UniqueConstraint("code_hash", name=op.f("uq_provisioning_codes__code_hash")),
        sa.UniqueConstraint("code_id", name=op.f("uq_provisioning_codes__code_id")),
    )
    op.create_index(op.f("ix_provisioning_codes__account_id_seq"), "provisioning_codes", ["account_id", "seq"], unique=False)
    op.create_index(op.f("ix_provisioning_codes__created_by"), "provisioning_codes", ["created_by"], unique=False)
    op.create_index(op.f("ix_provisioning_codes__device_type_id"), "provisioning_codes", ["device_type_id"], unique=False)
    op.create_index(op.f("ix_provisioning_codes__project_id"), "provisioning_codes", ["project_id"], unique=False)


def _create_claims() -> None:
    op.create_table(
        "device_claims",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("claim_id", sa.Text(), nullable=False),
        sa.Column("code_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("hardware_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=True),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("decided_ms", NUMBER, nullable=True),
        sa.CheckConstraint("status IN ('WAITING', 'APPROVED', 'DENIED', 'CLAIMED')", name=op.f("ck_device_claims__status_known")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.account_id"], name=op.f("fk_device_claims__account_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["code_id"], ["provisioning_codes.code_id"], name=op.f("fk_device_claims__code_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.device_id"], name=op.f("fk_device_claims__device_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_device_claims")),
        sa.UniqueConstraint("claim_id", name=op.f("uq_device_claims__claim_id")),
        sa.UniqueConstraint("code_id", "hardware_id", name=op.f("uq_device_claims__code_id_hardware_id")),
    )
    op.create_index(op.f("ix_device_claims__account_id_seq"), "device_claims", ["account_id", "seq"], unique=False)
    op.create_index(
        op.f("ix_device_claims__account_id_status_seq"), "device_claims", ["account_id", "status", "seq"], unique=False
    )
    op.create_index(op.f("ix_device_claims__code_id_status"), "device_claims", ["code_id", "status"], unique=False)
    op.create_index(op.f("ix_device_claims__device_id"), "device_claims", ["device_id"], unique=False)
