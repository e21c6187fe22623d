"""Fencing: only the leader's transactions may write for the devices.

An instance that stalled or lost its connection while another one became leader may still have a transaction open, or may begin
one before it notices. Therefore every such transaction holds the fence (a shared advisory lock) until it ends, and checks first
that this instance still has the leader lock. A new leader takes the fence once, exclusively, before it reads anything, and
terminates old transactions that do not end in time. So a write of the old leader is stored either before the new one reads, or
not at all.
"""

from __future__ import annotations

import asyncio
from typing import Any

from adapters.storage.sql.probes import ADVISORY_LOCKS
from adapters.storage.sql.session import SqlSession
from adapters.storage.sql.statements import text_with_bigints
from domain.kernel.errors import Unavailable

LEADER_LOCK_KEY = 5492025319
"""The advisory lock of the leader."""
FENCE_LOCK_KEY = LEADER_LOCK_KEY + 1
DRAIN_TRIES, DRAIN_INTERVAL_S = 100, 0.05
TERMINATE_AFTER_TRIES = 20
"""Tries before the old leader's transactions are terminated: one second, which is longer than they take."""

LOCK_SHARED = text_with_bigints("SELECT pg_advisory_xact_lock_shared(:at_fence)", "at_fence")
_IS_LEADER = f"SELECT 1 FROM {ADVISORY_LOCKS.format(key=':at_devices')} AND pid = :at_pid"  # noqa: S608 - of constants
IS_LEADER = text_with_bigints(_IS_LEADER, "at_devices", "at_pid")
_TERMINATE_HOLDERS = f"SELECT pg_terminate_backend(pid) FROM {ADVISORY_LOCKS.format(key='$1')}"  # noqa: S608 - of constants


class NotLeaderError(Unavailable):
    code = "DEVICES_NOT_OURS"


class PostgresLeaderFence:
    def __init__(self) -> None:
        self.leader_pid: int | None = None
        """PostgreSQL's process id of the connection that has this instance's leader lock."""

    async def hold(self, session: SqlSession) -> None:
        """Hold the fence until the transaction ends. Raises NotLeaderError."""
        pid = self.leader_pid
        if pid is not None:
            # First the fence, so that no new leader can start between the check and the commit.
            await session.read(LOCK_SHARED, at_fence=FENCE_LOCK_KEY)
            if await session.read(IS_LEADER, at_devices=LEADER_LOCK_KEY, at_pid=pid):
                return
        raise NotLeaderError("This instance is not the leader, so its writes for the devices are rejected.")

    async def drained(self, connection: Any) -> bool:
        """Called by a new leader. True once no transaction of the old leader is open."""
        for number in range(DRAIN_TRIES):
            if await connection.fetchval("SELECT pg_try_advisory_lock($1)", FENCE_LOCK_KEY):
                await connection.execute("SELECT pg_advisory_unlock($1)", FENCE_LOCK_KEY)
                return True
            if number == TERMINATE_AFTER_TRIES:
                await connection.execute(_TERMINATE_HOLDERS, FENCE_LOCK_KEY)
            await asyncio.sleep(DRAIN_INTERVAL_S)
        return False
