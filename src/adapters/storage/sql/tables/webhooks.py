"""Webhooks, their deliveries and the attempts of each delivery."""

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
from domain.webhooks.model import WebhookDeliveryState

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
    partial_index("ix_deliveries__owed", "ready_ms", "no", "webhook_id", where=PENDING_DELIVERY),
    partial_index("ix_deliveries__owed_to", "webhook_id", "ready_ms", "no", where=PENDING_DELIVERY),
    partial_index("ix_deliveries__settled", "created_ms", where=FINISHED_DELIVERY),
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
