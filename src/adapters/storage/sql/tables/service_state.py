"""What the service stores about its own operation."""

from __future__ import annotations

from sqlalchemy import Column, Table

from adapters.storage.sql.tables.columns import Int64, metadata, text_column

write_probes = Table(
    "write_probes",
    metadata,
    Column("probe_id", Int64, primary_key=True, autoincrement=False),
    text_column("padding"),
)
"""One row, rewritten by each readiness check."""
