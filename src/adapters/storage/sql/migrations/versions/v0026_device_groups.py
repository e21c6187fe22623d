"""Groups of devices, and grants on them. A grant on a group also names the group's project."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_groups()
    _create_members()
    op.add_column("grants", sa.Column("group_id", sa.Text(), nullable=True))
    op.create_index("ix_grants__group_id_seq", "grants", ["group_id", "seq"], unique=False)


def _create_groups() -> None:
    op.create_table(
        "device_groups",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_device_groups__account_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.project_id"], name="fk_device_groups__project_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_device_groups"),
        sa.UniqueConstraint("group_id", name="uq_device_groups__group_id"),
        sa.UniqueConstraint("project_id", "name", name="uq_device_groups__project_id_name"),
    )
    op.create_index("ix_device_groups__account_id_seq", "device_groups", ["account_id", "seq"], unique=False)


def _create_members() -> None:
    op.create_table(
        "group_members",
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("added_by", sa.Text(), nullable=False),
        sa.Column("added_ms", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["device_groups.group_id"], name="fk_group_members__group_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], name="fk_group_members__device_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("group_id", "device_id", name="pk_group_members"),
    )
    op.create_index("ix_group_members__device_id_group_id", "group_members", ["device_id", "group_id"], unique=False)
