"""The event log: events, their writers, and counts.

The seals that prove that nothing in the event log was changed.

Webhooks, their deliveries and the attempts of each delivery.

What members want to be told, where, and the notifications that are owed.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, LargeBinary, Table, Text, text

from adapters.storage.sql.tables.columns import (
    Int64,
    autoincrement_key,
    foreign_key_column,
    integer_column,
    metadata,
    one_of_check,
    partial_index,
    text_column,
)
from domain.webhooks.model import UNDELIVERED, WebhookDeliveryState

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
    integer_column("writer"),
    integer_column("sequence"),  # in its chain
    text_column("hash"),
    text_column("folded", null=True),  # what a search looks in, where it has more than ASCII
    Index(None, "account_id", "position"),
    Index(None, "account_id", "kind", "position"),
    Index(None, "device_id", "position"),
    Index(None, "device_id", "kind", "position"),
    Index(None, "device_id", "at_ms", "position"),
    Index(None, "at_ms"),
    sqlite_autoincrement=True,
)

event_writers = Table(  # the last position of each writer number; PostgreSQL only (see repositories/events.py)
    "event_writers", metadata, Column("writer", Int64, primary_key=True, autoincrement=False), integer_column("position")
)

event_totals = Table(  # per account and writer: how many events are stored, and the last record of their chain
    "event_totals",
    metadata,
    Column("account_id", Text, ForeignKey("accounts.account_id", ondelete="CASCADE"), primary_key=True),
    Column("writer", Int64, primary_key=True, autoincrement=False),
    integer_column("total"),  # the rest has defaults for a statement that changes only the total
    Column("sequence", Int64, nullable=False, server_default=text("0")),
    Column("position", Int64, nullable=False, server_default=text("0")),
    Column("hash", Text, nullable=False, server_default=text("''")),
)


event_counts = Table(  # the same per account, kind and device; the device is "" if there is none
    "event_counts",
    metadata,
    Column("account_id", Text, ForeignKey("accounts.account_id", ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("device_id", Text, primary_key=True),
    Column("writer", Int64, primary_key=True, autoincrement=False),
    integer_column("total"),
    Index(None, "account_id", "device_id"),
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
    "audit_rounds", metadata, Column("sealed_ms", Int64, primary_key=True, autoincrement=False), text_column("log")
)


webhooks = Table(
    "webhooks",
    metadata,
    autoincrement_key("seq"),
    text_column("webhook_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("key_id", "api_keys.key_id"),
    text_column("origin"),
    Column("sealed_url", LargeBinary, nullable=False),
    Column("sealed_secret", LargeBinary, nullable=False),
    text_column("secret_prefix"),
    integer_column("generation"),
    Column("enabled", Boolean, nullable=False),
    text_column("disabled_reason", null=True),
    integer_column("failing_since_ms", null=True),
    integer_column("created_ms"),
    integer_column("updated_ms"),
    text_column("types", null=True),
    text_column("format"),
    Index(None, "account_id", "seq"),
    Index(None, "key_id"),
)

PENDING_DELIVERY = text("state = 'PENDING'")

FINISHED_DELIVERY = text("state <> 'PENDING'")

UNDELIVERED_DELIVERY = text(f"state IN ({', '.join(repr(state.value) for state in sorted(UNDELIVERED))})")

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
    partial_index("ix_deliveries__owed", "ready_ms", "no", "webhook_id", where=PENDING_DELIVERY),
    partial_index("ix_deliveries__owed_to", "webhook_id", "ready_ms", "no", where=PENDING_DELIVERY),
    partial_index("ix_deliveries__settled", "created_ms", where=FINISHED_DELIVERY),
    partial_index("ix_deliveries__undelivered", "webhook_id", "created_ms", "no", where=UNDELIVERED_DELIVERY),
    sqlite_autoincrement=True,
)

webhook_recoveries = Table(
    "webhook_recoveries",
    metadata,
    Column("webhook_id", Text, ForeignKey("webhooks.webhook_id", ondelete="CASCADE"), primary_key=True),
    text_column("account_id"),
    integer_column("from_ms"),
    integer_column("after_no"),
    integer_column("until_ms"),
    integer_column("current_no", null=True),
    integer_column("sent"),
    integer_column("failed"),
    integer_column("failed_in_row"),
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


notification_settings = Table(
    "notification_settings",
    metadata,
    Column("membership_id", Text, ForeignKey("memberships.membership_id", ondelete="CASCADE"), primary_key=True),
    text_column("account_id"),
    text_column("topics"),
    integer_column("offline_minutes"),
    integer_column("quiet_from_minute", null=True),
    integer_column("quiet_to_minute", null=True),
    text_column("timezone"),
    text_column("language"),
    Index(None, "account_id"),
)

notification_channels = Table(
    "notification_channels",
    metadata,
    Column("channel_id", Text, primary_key=True),
    foreign_key_column("membership_id", "memberships.membership_id"),
    text_column("account_id"),
    text_column("kind"),
    text_column("name"),
    text_column("target"),
    Column("sealed", LargeBinary, nullable=True),
    integer_column("created_ms"),
    integer_column("last_sent_ms", null=True),
    text_column("last_error", null=True),
    text_column("last_error_code", null=True),
    integer_column("last_error_ms", null=True),
    integer_column("suspended_ms", null=True),
    Index(None, "membership_id"),
    Index(None, "account_id"),
)

notifications = Table(
    "notifications",
    metadata,
    autoincrement_key("seq"),
    text_column("channel_id"),
    text_column("topic"),
    text_column("device_id", null=True),
    text_column("approval_id", null=True),
    text_column("subject"),
    text_column("text"),
    integer_column("due_ms"),
    integer_column("attempt"),
    Index(None, "due_ms"),
    Index(None, "device_id"),
    Index(None, "channel_id"),
    sqlite_autoincrement=True,
)
