"""The event log: events, their writers, and counts."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, Table, Text, text

from adapters.storage.sql.tables.columns import (
    Int64,
    autoincrement_key,
    foreign_key_column,
    integer_column,
    metadata,
    text_column,
)

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

event_writers = Table(  # the last position of each writer number; PostgreSQL only (see event_log_position_reservation.py)
    "event_writers", metadata, Column("writer", Int64, primary_key=True, autoincrement=False), integer_column("position")
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
