"""Tables that keep growing: the event log, the readings, the webhook deliveries."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, LargeBinary, Table, Text, text

from adapters.storage.sql.tables.columns import (
    Int64,
    autoincrement_key,
    foreign_key_column,
    integer_column,
    metadata,
    on_postgres,
    one_of_check,
    text_column,
)
from domain.ingest.dead_letters import DeadLetterState
from domain.webhooks.model import WebhookDeliveryState

events = Table(
    "events",
    metadata,
    autoincrement_key("position"),
    text_column("event_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    text_column("device_id", null=True),  # no foreign key: the log outlives its devices
    text_column("device_name", null=True),
    text_column("kind"),
    text_column("description"),
    integer_column("at_ms"),
    text_column("source"),
    text_column("address"),
    text_column("payload"),
    Column("public", Boolean, nullable=False),
    Column("writer", Int64, nullable=False, server_default=text("0")),
    Column("sequence", Int64, nullable=False, server_default=text("0")),  # in its chain; 0: of a version without chains
    Column("hash", Text, nullable=False, server_default=text("''")),
    Index(None, "account_id", "position"),
    Index(None, "account_id", "kind", "position"),
    Index(None, "device_id", "position"),
    Index(None, "device_id", "kind", "position"),
    Index(None, "device_id", "at_ms", "position"),
    Index(None, "at_ms"),
    sqlite_autoincrement=True,
)

event_writers = Table(  # the last position of each writer number; PostgreSQL only (see repositories/event_writer_numbers.py)
    "event_writers",
    metadata,
    Column("writer", Int64, primary_key=True, autoincrement=False),
    integer_column("position"),
)

event_totals = Table(  # per account and writer: how many events are stored, and the last record of their chain
    "event_totals",
    metadata,
    Column("account_id", Text, ForeignKey("accounts.account_id", ondelete="CASCADE"), primary_key=True),
    Column("writer", Int64, primary_key=True, autoincrement=False, server_default=text("0")),
    integer_column("total"),
    Column("sequence", Int64, nullable=False, server_default=text("0")),
    Column("position", Int64, nullable=False, server_default=text("0")),
    Column("hash", Text, nullable=False, server_default=text("''")),
)

audit_seals = Table(  # signed heads of an account's chains (see domain/audit/seals.py)
    "audit_seals",
    metadata,
    Column("account_id", Text, ForeignKey("accounts.account_id", ondelete="CASCADE"), primary_key=True),
    Column("number", Int64, primary_key=True, autoincrement=False),
    integer_column("sealed_ms"),
    text_column("content"),
    text_column("signature"),
    Column("purged", Boolean, nullable=False),  # retention deletes the records up to this seal
    Index(None, "sealed_ms"),
)

audit_rounds = Table(  # what of the log was sealed when, of all accounts: retention deletes no record before it is sealed
    "audit_rounds",
    metadata,
    Column("sealed_ms", Int64, primary_key=True, autoincrement=False),
    text_column("log"),
)

event_counts = Table(  # the same per account, kind and device; the device is "" if there is none
    "event_counts",
    metadata,
    Column("account_id", Text, ForeignKey("accounts.account_id", ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("device_id", Text, primary_key=True),
    Column("writer", Int64, primary_key=True, autoincrement=False, server_default=text("0")),
    integer_column("total"),
    Index(None, "account_id", "device_id"),
)

readings = Table(
    "readings",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("ts", Int64, primary_key=True, autoincrement=False),
    Column("digest", Int64, primary_key=True, autoincrement=False),
    Column("packed", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
    info=on_postgres(partition_by="RANGE (ts)"),
)

rollups = Table(
    "rollups",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("hour", Int64, primary_key=True, autoincrement=False),
    Column("packed", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
    info=on_postgres(partition_by="RANGE (hour)"),
)

rollups_due = Table(
    "rollups_due",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("hour", Int64, primary_key=True, autoincrement=False),
    integer_column("marked_ms"),
    Index(None, "hour", "device_no"),
    sqlite_with_rowid=False,
)

tombstones = Table(
    "graves",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    integer_column("deleted_ms"),
)

metric_names = Table(
    "metric_names",
    metadata,
    Column("metric_no", Int64, primary_key=True, autoincrement=False),
    text_column("name", unique=True),
)

device_metrics = Table(
    "device_metrics",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("metric_no", Int64, primary_key=True, autoincrement=False),
    text_column("unit", null=True),
    sqlite_with_rowid=False,
)

device_latest = Table(
    "device_latest",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    integer_column("ts"),
    Column("packed", LargeBinary, nullable=False),
)

device_health = Table(
    "device_health",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    integer_column("connects"),
    text_column("firmware", null=True),
    integer_column("max_packet_size", null=True),
    integer_column("clock_offset_ms", null=True),
)

device_drops = Table(
    "device_drops",
    metadata,
    Column("device_no", Int64, primary_key=True, autoincrement=False),
    Column("reason", Text, primary_key=True),
    integer_column("unannounced"),
    integer_column("last_ms"),
    integer_column("announced_ms", null=True),
    sqlite_with_rowid=False,
)
"""Messages of devices that were dropped, by reason; without a foreign key, like all that devices report."""

dead_letters = Table(
    "dead_letters",
    metadata,
    autoincrement_key("letter_id"),
    integer_column("device_no"),  # no foreign key: the letters of a deleted device are deleted in batches
    text_column("device_id", null=True),
    text_column("kind"),
    Column("payload", LargeBinary, nullable=False),
    integer_column("arrived_ms"),
    text_column("reason"),
    integer_column("created_ms"),
    text_column("state"),
    one_of_check("state", [state.value for state in DeadLetterState]),
    Index(None, "state", "letter_id"),
    Index(None, "device_no"),
    sqlite_autoincrement=True,
)

webhooks = Table(
    "webhooks",
    metadata,
    autoincrement_key("seq"),
    text_column("webhook_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("key_id", "api_keys.key_id"),
    text_column("origin"),
    Column("sealed_url", LargeBinary),
    Column("sealed_secret", LargeBinary, nullable=False),
    text_column("secret_prefix"),
    integer_column("generation"),
    Column("enabled", Boolean, nullable=False),
    text_column("disabled_reason", null=True),
    integer_column("failing_since_ms", null=True),
    integer_column("created_ms"),
    integer_column("updated_ms"),
    text_column("types", null=True),
    Column("format", Text, nullable=False, server_default=text("'standard'")),
    Index(None, "account_id", "seq"),
    Index(None, "key_id"),
)

PENDING_DELIVERY = text("state = 'PENDING'")
FINISHED_DELIVERY = text("state <> 'PENDING'")

deliveries = Table(
    "deliveries",
    metadata,
    autoincrement_key("no"),
    text_column("webhook_id"),  # no foreign key: the deliveries of a deleted webhook are deleted in batches
    text_column("account_id"),
    text_column("device_id", null=True),
    text_column("event_id"),
    text_column("event_type"),
    Column("data", LargeBinary, nullable=False),
    text_column("state"),
    integer_column("attempts"),
    integer_column("due_ms"),
    integer_column("claimed_until_ms", null=True),
    integer_column("ready_ms"),  # it may be claimed from then on: due_ms, or the end of the lease
    integer_column("created_ms"),
    one_of_check("state", [state.value for state in WebhookDeliveryState]),
    Index(None, "webhook_id", "no"),  # with `no`, so that a scan can continue where it stopped
    Index(None, "device_id"),
    Index(
        "ix_deliveries__owed",
        "ready_ms",
        "no",
        "webhook_id",
        sqlite_where=PENDING_DELIVERY,
        info=on_postgres(where=PENDING_DELIVERY),
    ),
    Index(
        "ix_deliveries__owed_to",
        "webhook_id",
        "ready_ms",
        "no",
        sqlite_where=PENDING_DELIVERY,
        info=on_postgres(where=PENDING_DELIVERY),
    ),
    Index("ix_deliveries__settled", "created_ms", sqlite_where=FINISHED_DELIVERY, info=on_postgres(where=FINISHED_DELIVERY)),
    sqlite_autoincrement=True,
)

attempts = Table(
    "attempts",
    metadata,
    autoincrement_key("seq"),
    text_column("delivery_id", unique=True),
    Column("delivery_no", Int64, ForeignKey("deliveries.no", ondelete="CASCADE"), nullable=False),
    text_column("webhook_id"),
    text_column("event_id"),
    text_column("event_type"),
    text_column("device_id", null=True),
    integer_column("number"),
    integer_column("created_ms"),
    integer_column("finished_ms", null=True),
    integer_column("status_code", null=True),
    text_column("error", null=True),
    Column("succeeded", Boolean, nullable=False),
    integer_column("duration_ms", null=True),
    integer_column("next_attempt_ms", null=True),
    Index(None, "webhook_id", "seq"),
    Index(None, "delivery_no"),
)
