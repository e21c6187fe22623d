"""What grows without end: the log, the readings, and what is owed to webhooks."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, LargeBinary, Table, Text, text

from adapters.storage.sql.tables.columns import Number, belongs, counter, metadata, number, one_of, words
from domain.webhooks.model import DeliveryState

events = Table(
    "events",
    metadata,
    counter("position"),
    words("event_id", unique=True),
    belongs("account_id", "accounts.account_id"),
    words("device_id", null=True),  # no foreign key: the log outlives its devices
    words("device_name", null=True),
    words("kind"),
    words("description"),
    number("at_ms"),
    words("source"),
    words("address"),
    words("payload"),
    Column("public", Boolean, nullable=False),
    Index(None, "account_id", "position"),
    Index(None, "account_id", "kind", "position"),
    Index(None, "device_id", "position"),
    Index(None, "device_id", "kind", "position"),
    Index(None, "device_id", "at_ms", "position"),
    Index(None, "at_ms"),
    sqlite_autoincrement=True,
)

event_totals = Table(
    "event_totals",
    metadata,
    Column("account_id", Text, ForeignKey("accounts.account_id", ondelete="CASCADE"), primary_key=True),
    number("total"),
)

event_counts = Table(  # of an account's events, by kind and device; the device is "" where there is none
    "event_counts",
    metadata,
    Column("account_id", Text, ForeignKey("accounts.account_id", ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("device_id", Text, primary_key=True),
    number("total"),
    Index(None, "account_id", "device_id"),
)

readings = Table(
    "readings",
    metadata,
    Column("device_no", Number, primary_key=True, autoincrement=False),
    Column("ts", Number, primary_key=True, autoincrement=False),
    Column("digest", Number, primary_key=True, autoincrement=False),
    Column("packed", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

rollups = Table(
    "rollups",
    metadata,
    Column("device_no", Number, primary_key=True, autoincrement=False),
    Column("hour", Number, primary_key=True, autoincrement=False),
    Column("packed", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

rollups_due = Table(
    "rollups_due",
    metadata,
    Column("device_no", Number, primary_key=True, autoincrement=False),
    Column("hour", Number, primary_key=True, autoincrement=False),
    number("marked_ms"),
    Index(None, "hour", "device_no"),
    sqlite_with_rowid=False,
)

graves = Table(
    "graves",
    metadata,
    Column("device_no", Number, primary_key=True, autoincrement=False),
    number("deleted_ms"),
)

metric_names = Table(
    "metric_names",
    metadata,
    Column("metric_no", Number, primary_key=True, autoincrement=False),
    words("name", unique=True),
)

device_metrics = Table(
    "device_metrics",
    metadata,
    Column("device_no", Number, primary_key=True, autoincrement=False),
    Column("metric_no", Number, primary_key=True, autoincrement=False),
    words("unit", null=True),
    sqlite_with_rowid=False,
)

device_latest = Table(
    "device_latest",
    metadata,
    Column("device_no", Number, primary_key=True, autoincrement=False),
    number("ts"),
    Column("packed", LargeBinary, nullable=False),
)

webhooks = Table(
    "webhooks",
    metadata,
    counter("seq"),
    words("webhook_id", unique=True),
    belongs("account_id", "accounts.account_id"),
    belongs("key_id", "api_keys.key_id"),
    words("url"),
    Column("sealed_secret", LargeBinary, nullable=False),
    words("secret_prefix"),
    number("generation"),
    Column("enabled", Boolean, nullable=False),
    words("disabled_reason", null=True),
    number("failing_since_ms", null=True),
    number("created_ms"),
    number("updated_ms"),
    Index(None, "account_id", "seq"),
    Index(None, "key_id"),
)

OWED = text("state = 'PENDING'")
SETTLED = text("state <> 'PENDING'")

deliveries = Table(
    "deliveries",
    metadata,
    counter("no"),
    words("webhook_id"),  # no foreign key: a webhook goes at once, the million rows it may have in steps after it
    words("account_id"),
    words("device_id", null=True),
    words("event_id"),
    words("event_type"),
    Column("data", LargeBinary, nullable=False),
    words("state"),
    number("attempts"),
    number("due_ms"),
    number("claimed_until_ms", null=True),
    number("ready_ms"),  # when it may be claimed: due_ms, or the end of the lease
    number("created_ms"),
    one_of("state", [state.value for state in DeliveryState]),
    Index(None, "webhook_id", "no"),  # with `no`, so that a walk can go on where it was
    Index(None, "device_id"),
    Index("ix_deliveries__owed", "ready_ms", "no", "webhook_id", sqlite_where=OWED, postgresql_where=OWED),
    Index("ix_deliveries__owed_to", "webhook_id", "ready_ms", "no", sqlite_where=OWED, postgresql_where=OWED),
    Index("ix_deliveries__settled", "created_ms", sqlite_where=SETTLED, postgresql_where=SETTLED),
    sqlite_autoincrement=True,
)

attempts = Table(
    "attempts",
    metadata,
    counter("seq"),
    words("delivery_id", unique=True),
    Column("delivery_no", Number, ForeignKey("deliveries.no", ondelete="CASCADE"), nullable=False),
    words("webhook_id"),
    words("event_id"),
    words("event_type"),
    words("device_id", null=True),
    number("number"),
    number("created_ms"),
    number("finished_ms", null=True),
    number("status_code", null=True),
    words("error", null=True),
    Column("succeeded", Boolean, nullable=False),
    number("duration_ms", null=True),
    number("next_attempt_ms", null=True),
    Index(None, "webhook_id", "seq"),
    Index(None, "delivery_no"),
)
