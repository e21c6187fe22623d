"""The seals that prove that nothing in the event log was changed."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, Table, Text

from adapters.storage.sql.tables.columns import Int64, integer_column, metadata, text_column

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
