"""The write of the readiness check: a row that is rewritten and committed, as every other write is.

Only a real write proves that the database can write: an empty transaction commits on a full disk.

Which processes are alive: on PostgreSQL each holds an advisory lock of its own, on the connection of its listener.

PostgreSQL releases the lock when that connection ends: at once for a killed process, after some seconds for a machine that has
vanished. A process that only lost this connection is taken for gone until it has connected again; therefore nothing may
rely on the lock alone. The claims of idempotency keys do not: a claim that was taken over cannot be committed any more.

How PostgreSQL knows which instance a session belongs to: by its `application_name`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from sqlalchemy import text

from adapters.storage.sql.session import SqlSession
from adapters.storage.sql.statements import text_with_bigints

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


MAX_LENGTH = 63
"""PostgreSQL cuts longer names off at their end. Here their beginning is cut: an instance's name ends with what is unique."""
MEMBERSHIP_IDLE_MS = 1_500
"""Of an open transaction: less than others take to judge that the member is dead."""


SERVICE_SESSIONS = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND application_name LIKE 'latchboard%'"
)


def session_name(instance: str | None) -> str:
    """`instance`: its name in the cluster, if it is part of one."""
    if instance is None:
        return "latchboard"
    return f"latchboard {instance}".encode("ascii", "ignore").decode()[-MAX_LENGTH:]


def session_settings(instance: str | None, *, for_membership: bool) -> Mapping[str, str]:
    """Of PostgreSQL. `for_membership`: no other member ends these sessions, for a member that is taken for dead wrongly goes on
    beating. So the server ends their transactions soon itself. A commit does not wait for the disk."""
    if not for_membership:
        return {"application_name": session_name(instance)}
    timeout_ms = str(MEMBERSHIP_IDLE_MS)
    name = "latchboard-membership"
    return {"application_name": name, "synchronous_commit": "off", "idle_in_transaction_session_timeout": timeout_ms}
