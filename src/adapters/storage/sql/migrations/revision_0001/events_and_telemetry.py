"""The log, readings and webhooks, as revision 0001 created them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from adapters.storage.sql.migrations.revision_0001 import NUMBER, create_partial_index


def create() -> None:
    events()
    event_totals()
    readings()
    metric_names()
    device_metrics()
    device_latest()
    webhooks()
    deliveries()
    attempts()


def events() -> None:
    op.create_table(
        "events",
        sa.Column("position", NUMBER, autoincrement=True, nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=True),
        sa.Column("device_name", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("at_ms", NUMBER, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("public", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_events__account_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("position", name="pk_events"),
        sa.UniqueConstraint("event_id", name="uq_events__event_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events__account_id_kind_position", "events", ["account_id", "kind", "position"], unique=False)
    op.create_index("ix_events__account_id_position", "events", ["account_id", "position"], unique=False)
    op.create_index("ix_events__at_ms", "events", ["at_ms"], unique=False)
    op.create_index("ix_events__device_id_at_ms_position", "events", ["device_id", "at_ms", "position"], unique=False)
    op.create_index("ix_events__device_id_position", "events", ["device_id", "position"], unique=False)


def event_totals() -> None:
    op.create_table(
        "event_totals",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("total", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_event_totals__account_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("account_id", name="pk_event_totals"),
    )


def readings() -> None:
    op.create_table(
        "readings",
        sa.Column("device_no", NUMBER, autoincrement=False, nullable=False),
        sa.Column("ts", NUMBER, autoincrement=False, nullable=False),
        sa.Column("digest", NUMBER, autoincrement=False, nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("device_no", "ts", "digest", name="pk_readings"),
        sqlite_with_rowid=False,
    )


def metric_names() -> None:
    op.create_table(
        "metric_names",
        sa.Column("metric_no", NUMBER, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("metric_no", name="pk_metric_names"),
        sa.UniqueConstraint("name", name="uq_metric_names__name"),
    )


def device_metrics() -> None:
    op.create_table(
        "device_metrics",
        sa.Column("device_no", NUMBER, autoincrement=False, nullable=False),
        sa.Column("metric_no", NUMBER, autoincrement=False, nullable=False),
        sa.Column("unit", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("device_no", "metric_no", name="pk_device_metrics"),
        sqlite_with_rowid=False,
    )


def device_latest() -> None:
    op.create_table(
        "device_latest",
        sa.Column("device_no", NUMBER, autoincrement=False, nullable=False),
        sa.Column("ts", NUMBER, nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("device_no", name="pk_device_latest"),
    )


def webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("sealed_secret", sa.LargeBinary(), nullable=False),
        sa.Column("secret_prefix", sa.Text(), nullable=False),
        sa.Column("generation", NUMBER, nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("failing_since_ms", NUMBER, nullable=True),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("updated_ms", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_webhooks__account_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.key_id"], name="fk_webhooks__key_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_webhooks"),
        sa.UniqueConstraint("webhook_id", name="uq_webhooks__webhook_id"),
    )
    op.create_index("ix_webhooks__account_id_seq", "webhooks", ["account_id", "seq"], unique=False)
    op.create_index("ix_webhooks__key_id", "webhooks", ["key_id"], unique=False)


def deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("no", NUMBER, autoincrement=True, nullable=False),
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=True),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", NUMBER, nullable=False),
        sa.Column("due_ms", NUMBER, nullable=False),
        sa.Column("claimed_until_ms", NUMBER, nullable=True),
        sa.Column("ready_ms", NUMBER, nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.CheckConstraint("state IN ('PENDING', 'DELIVERED', 'GIVEN_UP', 'CANCELLED')", name=op.f("ck_deliveries__state_known")),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.webhook_id"], name="fk_deliveries__webhook_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("no", name="pk_deliveries"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_deliveries__device_id", "deliveries", ["device_id"], unique=False)
    create_partial_index("ix_deliveries__owed", "deliveries", ["ready_ms", "no", "webhook_id"], "state = 'PENDING'")
    create_partial_index("ix_deliveries__owed_to", "deliveries", ["webhook_id", "ready_ms", "no"], "state = 'PENDING'")
    create_partial_index("ix_deliveries__settled", "deliveries", ["created_ms"], "state <> 'PENDING'")
    op.create_index("ix_deliveries__webhook_id", "deliveries", ["webhook_id"], unique=False)


def attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("delivery_no", NUMBER, nullable=False),
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=True),
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("finished_ms", NUMBER, nullable=True),
        sa.Column("status_code", NUMBER, nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("succeeded", sa.Boolean(), nullable=False),
        sa.Column("duration_ms", NUMBER, nullable=True),
        sa.Column("next_attempt_ms", NUMBER, nullable=True),
        sa.ForeignKeyConstraint(["delivery_no"], ["deliveries.no"], name="fk_attempts__delivery_no", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_attempts"),
        sa.UniqueConstraint("delivery_id", name="uq_attempts__delivery_id"),
    )
    op.create_index("ix_attempts__delivery_no", "attempts", ["delivery_no"], unique=False)
    op.create_index("ix_attempts__webhook_id_seq", "attempts", ["webhook_id", "seq"], unique=False)
