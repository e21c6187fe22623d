"""The write of the readiness check: a row that is rewritten and committed, as every other write is.

Only a real write proves that the database can write: an empty transaction commits on a full disk.
"""

from __future__ import annotations

import secrets

from sqlalchemy import text

from adapters.storage.sql.sql_session_port import SqlSession

PROBE_BYTES = 3_000
"""About one page."""
PROBE_BYTES_AFTER_FAILURE = 262_144
"""As much as a batch of telemetry. After a failed write a few free pages may be left, in which a small write still fits."""

_REWRITE = text(
    "INSERT INTO write_probes (probe_id, padding) VALUES (1, :padding) "
    "ON CONFLICT (probe_id) DO UPDATE SET padding = excluded.padding"
)


async def write_probe(session: SqlSession, *, after_failure: bool = False) -> None:
    """The content differs each time: a database may skip the write of a page that does not change."""
    size = PROBE_BYTES_AFTER_FAILURE if after_failure else PROBE_BYTES
    await session.write(_REWRITE, padding=secrets.token_hex(size // 2))
