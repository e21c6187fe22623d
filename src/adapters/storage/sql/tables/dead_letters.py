"""Messages of devices that the database refused."""

from __future__ import annotations

from sqlalchemy import Column, Index, LargeBinary, Table

from adapters.storage.sql.tables.columns import autoincrement_key, integer_column, metadata, one_of_check, text_column
from domain.ingest.dead_letters import IngestDeadLetterState

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
