"""What is written on behalf of the devices is taken only from the instance that holds them, in the moment of its commit.

Who stood still, or was cut off, while another instance took the devices over may have a transaction open, or begin one before it
hears of it. So each such transaction holds the fence (a shared lock) while it runs, and begins by asking whether the claim is
still ours; and who claims passes through the fence once, alone, before it looks at what is stored: it ends what does not end by
itself. What the old holder had in hand is then either stored before the new one looks, or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import BigInteger, bindparam, text

from adapters.storage.sql.session import DbSession
from adapters.storage.sql.unit_of_work import SqlTransaction, SqlUnitOfWork
from domain.kernel.caller import ApiKeyCaller, Session
from domain.kernel.errors import Unavailable

LEADER_LOCK_KEY = 5492025319
"""The advisory lock of the one instance that holds the devices."""
FENCE_LOCK_KEY = LEADER_LOCK_KEY + 1
DRAIN_TRIES, DRAIN_INTERVAL_S = 100, 0.05
TERMINATE_AFTER_TRIES = 20
"""Tries before transactions of the old holder are ended: a second, which is more than they take."""

_ADVISORY_LOCKS = (
    "pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND ((classid::bigint << 32) | objid::bigint) = {key} "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
LOCK_SHARED = text("SELECT pg_advisory_xact_lock_shared(:at_fence)").bindparams(bindparam("at_fence", type_=BigInteger()))
IS_LEADER = text(f"SELECT 1 FROM {_ADVISORY_LOCKS.format(key=':at_devices')} AND pid = :at_pid").bindparams(  # noqa: S608 - of constants
    bindparam("at_devices", type_=BigInteger()), bindparam("at_pid", type_=BigInteger())
)
_TERMINATE_HOLDERS = f"SELECT pg_terminate_backend(pid) FROM {_ADVISORY_LOCKS.format(key='$1')}"  # noqa: S608 - of constants


class NotLeaderError(Unavailable):
    code = "DEVICES_NOT_OURS"


class Fence:
    def __init__(self) -> None:
        self.leader_pid: int | None = None
        """The server's process whose connection has our claim."""

    async def hold(self, session: DbSession) -> None:
        """Until the transaction ends. Raises NotOurs."""
        pid = self.leader_pid
        if pid is not None:
            await session.read(
                LOCK_SHARED, at_fence=FENCE_LOCK_KEY
            )  # first, so that nobody passes between the answer and the commit
            if await session.read(IS_LEADER, at_devices=LEADER_LOCK_KEY, at_pid=pid):
                return
        raise NotLeaderError("This instance does not hold the devices now; what it would write about them is not taken.")

    async def drained(self, connection: Any) -> bool:
        """By who has just claimed: true once no transaction of the holder before is open."""
        for number in range(DRAIN_TRIES):
            if await connection.fetchval("SELECT pg_try_advisory_lock($1)", FENCE_LOCK_KEY):
                await connection.execute("SELECT pg_advisory_unlock($1)", FENCE_LOCK_KEY)
                return True
            if number == TERMINATE_AFTER_TRIES:
                await connection.execute(_TERMINATE_HOLDERS, FENCE_LOCK_KEY)
            await asyncio.sleep(DRAIN_INTERVAL_S)
        return False


class FencedUnitOfWork:
    """Its writing transactions hold the fence."""

    def __init__(self, uow: SqlUnitOfWork, fence: Fence) -> None:
        self._uow = uow
        self._fence = fence
        self.read = uow.read

    @asynccontextmanager
    async def write(self, caller: Session | ApiKeyCaller | None = None) -> AsyncIterator[SqlTransaction]:
        async with self._uow.write(caller) as tx:
            await self._fence.hold(tx.session)
            yield tx
