"""Which processes are alive: on PostgreSQL each holds an advisory lock of its own, on the connection of its listener.

PostgreSQL releases the lock when that connection ends: at once for a killed process, after some seconds for a machine that has
vanished. A process that only lost this connection is taken for gone until it has connected again; therefore nothing may
rely on the lock alone. The claims of idempotency keys do not: a claim that was taken over cannot be committed any more.
"""

from __future__ import annotations

from adapters.storage.sql.sql_session_port import SqlSession
from adapters.storage.sql.statement_builders import text_with_bigints

ADVISORY_LOCKS = (
    "pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND ((classid::bigint << 32) | objid::bigint) = {key} "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_HELD = text_with_bigints(f"SELECT 1 FROM {ADVISORY_LOCKS.format(key=':at_lock')}", "at_lock")  # noqa: S608 - of constants


def process_lock_key(process_id: bytes) -> int:
    """The key of the process's advisory lock. Process ids are random, so a meeting with another key is not to be expected."""
    return int.from_bytes(process_id[:8].ljust(8, b"\0"), "big", signed=True)


async def is_process_alive(session: SqlSession, process_id: bytes) -> bool:
    return bool(await session.read(_HELD, at_lock=process_lock_key(process_id)))
