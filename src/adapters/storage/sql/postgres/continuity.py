"""Notices that PostgreSQL has gone back: a standby took over without the last commits, or a backup was put in place.

Every connection is asked before it is used: does the server still know the last transaction that this process committed? A server
that took over says up to which place of the log it has replayed, and any server whether a transaction was committed. If it was
not, whoever notices first renews the life of the database (`kernel/life.py`); the others find another life. So no transaction of
this process runs on such a server without `DatabaseLife` saying so.

The transactions are noted at most every `NOTE_INTERVAL_S`: one more round trip. A failover that loses less than that is not
noticed by this.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple
from weakref import WeakSet

import asyncpg
import structlog

from adapters.storage.sql.repositories.life import new_life, stored_life
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.life import DatabaseLife, LifeCause, StoredLife

NOTE_INTERVAL_S = 0.02
HEARD_MARGIN_MS = 3 * SECOND_MS
"""The server may have committed for another process after it was last heard by this one."""
_NOTE = "SELECT pg_current_xact_id_if_assigned()::text, pg_current_wal_insert_lsn()::text, pg_postmaster_start_time()::text"
_COMPARE = (
    "SELECT life, began_ms, pending, CASE WHEN $1::text IS NULL THEN false "
    "WHEN $1::text::xid8 >= pg_snapshot_xmax(pg_current_snapshot()) THEN true "
    "WHEN pg_postmaster_start_time()::text <> $3::text AND pg_last_wal_replay_lsn() < $2::text::pg_lsn THEN true "
    "ELSE coalesce(pg_xact_status($1::text::xid8) <> 'committed', false) END AS went_back FROM database_life WHERE row_id = 1"
)
_RENEW = (
    "UPDATE database_life SET life = $1, began_ms = $2, pending = $3 WHERE row_id = 1 AND life = $4 "
    "RETURNING life, began_ms, pending"
)
_READ = "SELECT life, began_ms, pending FROM database_life WHERE row_id = 1"

log = structlog.get_logger("postgres")


class CommittedTransaction(NamedTuple):
    """The last that was noted: its id (None: it wrote nothing), a place in the log before its commit, and since when the server
    runs. A server replays its log only when it starts, so the place says nothing about the one that it was noted on."""

    transaction: str | None
    place: str
    server_since: str


class PostgresContinuity:
    """Of all connections of one process. Its errors are those of the driver."""

    def __init__(self, life: DatabaseLife, clock: Clock) -> None:
        self._life = life
        self._clock = clock
        self._compared: WeakSet[Any] = WeakSet()
        self._lock = asyncio.Lock()
        self._last: CommittedTransaction | None = None
        self._noted_at = float("-inf")
        self._heard_ms = 0

    def heard(self) -> None:
        """The server has answered."""
        self._heard_ms = self._clock.now_ms()

    async def require_compared(self, driver: Any) -> None:
        """Call before a connection is used. While the life has not been read, there is nothing to compare."""
        if driver in self._compared or not self._life.current:
            return
        async with self._lock:
            found = await driver.fetchrow(_COMPARE, *(self._last or (None, None, None)))
            if found is not None:
                await self._adopt(driver, found)
            self._compared.add(driver)

    async def _adopt(self, driver: Any, found: Any) -> None:
        known = self._life.current
        if found["life"] == known and not found["went_back"]:
            return
        stored = stored_life(found["life"], found["began_ms"], found["pending"])
        if self._life.is_unannounced(stored, went_back=found["went_back"]):
            began_ms = min(self._heard_ms + HEARD_MARGIN_MS, self._clock.now_ms())
            renewed = StoredLife(new_life(), began_ms, LifeCause.FAILOVER)
            mine = await driver.fetchrow(_RENEW, renewed.life, renewed.began_ms, LifeCause.FAILOVER.value, stored.life)
            found = mine or await driver.fetchrow(_READ)
        self._last = None
        log.error("the database does not have what this process has committed", life=found["life"], before=known)
        self._life.adopt(stored_life(found["life"], found["began_ms"], found["pending"]))

    async def note(self, driver: Any) -> CommittedTransaction | None:
        """Call before the commit of a transaction that may write, and `committed` with the result afterwards. Those that wrote
        nothing do not count, so that readers do not keep the next writer from being noted."""
        now = time.monotonic()
        if now - self._noted_at < NOTE_INTERVAL_S:
            return None
        try:
            noted = CommittedTransaction(*await driver.fetchrow(_NOTE))
        except asyncpg.InFailedSQLTransactionError:
            return None  # the commit says it
        if noted.transaction is None:
            return None
        self._noted_at = now
        return noted

    def committed(self, noted: CommittedTransaction | None) -> None:
        if noted is not None:
            self._last = noted
