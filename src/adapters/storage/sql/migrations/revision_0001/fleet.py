"""Devices, what they can do, and rules, as revision 0001 created them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from adapters.storage.sql.migrations.revision_0001 import NUMBER, create_partial_index


def create() -> None:
    device_types()
    devices()
    credentials()
    definitions()
    rules()


def device_types() -> None:
    op.create_table(
        "device_types",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("device_type_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_device_types__account_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_device_types"),
        sa.UniqueConstraint("device_type_id", name="uq_device_types__device_type_id"),
    )
    op.create_index("ix_device_types__account_id_seq", "device_types", ["account_id", "seq"], unique=False)


def devices() -> None:
    op.create_table(
        "devices",
        sa.Column("device_no", NUMBER, autoincrement=True, nullable=False),
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("board_type", sa.Text(), nullable=False),
        sa.Column("app_type", sa.Text(), nullable=False),
        sa.Column("app_type_other", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("device_type_id", sa.Text(), nullable=True),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column("manufacturer", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("industry", sa.Text(), nullable=True),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("version", NUMBER, nullable=False),
        sa.Column("relay", sa.Boolean(), nullable=True),
        sa.Column("is_online", sa.Boolean(), nullable=False),
        sa.Column("last_seen_ms", NUMBER, nullable=True),
        sa.Column("sched_rev", NUMBER, nullable=False),
        sa.Column("sched_rev_device", NUMBER, nullable=True),
        sa.CheckConstraint("profile IN ('native', 'tasmota', 'esphome', 'shelly')", name=op.f("ck_devices__profile_known")),
        sa.CheckConstraint(
            "status IN ('PENDING', 'ACTIVE', 'DISABLED', 'REVOKED', 'DELETING')", name=op.f("ck_devices__status_known")
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_devices__account_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["device_type_id"], ["device_types.device_type_id"], name="fk_devices__device_type_id", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.project_id"], name="fk_devices__project_id", ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("device_no", name="pk_devices"),
        sa.UniqueConstraint("device_id", name="uq_devices__device_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_devices__account_id_device_no", "devices", ["account_id", "device_no"], unique=False)
    op.create_index("ix_devices__device_type_id", "devices", ["device_type_id"], unique=False)
    create_partial_index("ix_devices__online", "devices", ["device_no"], "is_online", on_sqlite="is_online = 1")
    op.create_index("ix_devices__project_id_device_no", "devices", ["project_id", "device_no"], unique=False)


def credentials() -> None:
    op.create_table(
        "credentials",
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], name="fk_credentials__device_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("device_id", name="pk_credentials"),
    )


def definitions() -> None:
    op.create_table(
        "definitions",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("command_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=True),
        sa.Column("device_type_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("params_schema", sa.Text(), nullable=True),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("requires_approval", sa.Boolean(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.CheckConstraint("kind IN ('ACTION', 'QUERY')", name=op.f("ck_definitions__kind_known")),
        sa.CheckConstraint(
            "shape IN ('BUTTON', 'TOGGLE', 'NUMBER', 'SELECT', 'MULTI')", name=op.f("ck_definitions__shape_known")
        ),
        sa.CheckConstraint("(device_id IS NULL) <> (device_type_id IS NULL)", name=op.f("ck_definitions__one_place")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_definitions__account_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], name="fk_definitions__device_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["device_type_id"], ["device_types.device_type_id"], name="fk_definitions__device_type_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("seq", name="pk_definitions"),
        sa.UniqueConstraint("command_id", name="uq_definitions__command_id"),
        sa.UniqueConstraint("device_id", "name", name="uq_definitions__device_id_name"),
        sa.UniqueConstraint("device_type_id", "name", name="uq_definitions__device_type_id_name"),
    )


def rules() -> None:
    op.create_table(
        "rules",
        sa.Column("rule_no", NUMBER, autoincrement=True, nullable=False),
        sa.Column("rule_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("device_no", NUMBER, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("conditions", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("priority", NUMBER, nullable=False),
        sa.Column("match", sa.Text(), nullable=False),
        sa.Column("clear_conditions", sa.Text(), nullable=False),
        sa.Column("for_seconds", NUMBER, nullable=False),
        sa.Column("cooldown_seconds", NUMBER, nullable=False),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("matched", sa.Boolean(), nullable=False),
        sa.Column("held_since_ms", NUMBER, nullable=True),
        sa.Column("last_fired_ms", NUMBER, nullable=True),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("created_at", NUMBER, nullable=False),
        sa.Column("revision", NUMBER, nullable=False),
        sa.CheckConstraint("match IN ('ALL', 'ANY')", name=op.f("ck_rules__match_known")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_rules__account_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.device_id"], name="fk_rules__device_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("rule_no", name="pk_rules"),
        sa.UniqueConstraint("rule_id", name="uq_rules__rule_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_rules__device_id_priority_rule_no", "rules", ["device_id", "priority", "rule_no"], unique=False)
    create_partial_index("ix_rules__enabled", "rules", ["device_no", "priority", "rule_no"], "enabled", on_sqlite="enabled = 1")
