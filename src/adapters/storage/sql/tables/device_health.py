"""What the service learns about devices beside their readings: health, dropped messages and dead letters."""

from __future__ import annotations

from sqlalchemy import Column, Index, LargeBinary, Table, Text

from adapters.storage.sql.tables.columns import Int64, autoincrement_key, integer_column, metadata, one_of_check, text_column
from domain.ingest.dead_letters import IngestDeadLetterState

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
    one_of_check("state", [state.value for state in IngestDeadLetterState]),
    Index(None, "state", "letter_id"),
    Index(None, "device_no"),
    sqlite_autoincrement=True,
)
