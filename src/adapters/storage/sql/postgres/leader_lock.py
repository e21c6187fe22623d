"""The advisory lock that makes one instance the leader: only the leader serves the devices.

The lock belongs to the listener's connection. PostgreSQL releases it when that connection ends, so it ends with the process,
however the process ends. A process that hangs, or whose network swallows its packets, does not end its connection. So the lock
is a lease: the leader sends a statement on this connection every second, and PostgreSQL notes when. A standby that finds no
statement for `LEASE_S` has PostgreSQL end the connection. The standby judges by PostgreSQL's clock alone. The leader judges by
its own: without a renewal for `OWN_LEASE_S` it closes itself to devices, before a standby lets them in.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from adapters.storage.sql.postgres.leader_fence import LEADER_LOCK_KEY, PostgresLeaderFence
from adapters.storage.sql.process_liveness_probe import ADVISORY_LOCKS
from domain.kernel.errors import Unavailable

STANDBY_POLL_S = 0.5
"""How often a standby tries to take the lock. PostgreSQL notices at once that a killed process is gone."""
ACQUIRE_TRIES, ACQUIRE_INTERVAL_S = 5, 0.2
REACQUIRE_TRIES = 25
"""A leader that lost its connection has a better right to the lock than a standby, but only for five seconds."""

LEASE_S = 6.0
"""A leader that sent nothing for so long is replaced. Longer than any pause of a healthy one: it renews every second."""
OWN_LEASE_S = 4.0
RENEW_INTERVAL_S = 1.0

_END_EXPIRED_LEASE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid IN "  # noqa: S608 - of constants
    f"(SELECT pid FROM {ADVISORY_LOCKS.format(key='$1')}) "
    "AND pid <> pg_backend_pid() AND state_change < clock_timestamp() - make_interval(secs => $2)"
)


class LeadershipTakenOverError(Unavailable):
    """This instance was the leader; another one is now."""

    code = "DEVICES_HELD_ELSEWHERE"


class DeviceLeaderLock:
    def __init__(self, fence: PostgresLeaderFence | None = None) -> None:
        """`fence` limits this instance's writes for the devices to the time in which it holds the lock."""
        self._fence = fence or PostgresLeaderFence()
        self.acquired = asyncio.Event()
        """Set once and never cleared: an instance that loses the lock to another one stops."""
        self._renewed_at = float("-inf")

    def remaining_s(self) -> float:
        """Seconds until this leader closes itself to devices; 0 or less when it has to be closed."""
        return self._renewed_at + OWN_LEASE_S - monotonic()

    async def renew(self, connection: Any) -> None:
        began = monotonic()
        await connection.fetchval("SELECT 1", timeout=OWN_LEASE_S)
        self._renewed_at = began

    async def acquire(self, connection: Any) -> None:
        """Take the lock if it is free. Raises LeadershipTakenOverError if this instance had it and another one has it now."""
        was_leader = self.acquired.is_set()
        for _ in range(REACQUIRE_TRIES if was_leader else ACQUIRE_TRIES):
            if await self.try_acquire(connection):
                return
            await asyncio.sleep(ACQUIRE_INTERVAL_S)
        if was_leader:
            raise LeadershipTakenOverError(
                "This instance lost its database connection for a while, and another instance now serves the devices. "
                "Restart this one; it will wait beside the other."
            )

    async def try_acquire(self, connection: Any) -> bool:
        if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", LEADER_LOCK_KEY):
            await connection.execute(_END_EXPIRED_LEASE, LEADER_LOCK_KEY, LEASE_S)
            return False
        if not await self._fence.drained(connection):
            await connection.execute("SELECT pg_advisory_unlock($1)", LEADER_LOCK_KEY)
            return False
        await self.renew(connection)
        self._fence.leader_pid = connection.get_server_pid()
        self.acquired.set()
        return True

    def on_connection_closed(self) -> None:
        """The lock ended with the connection, so nothing may be written for the devices until it is taken again."""
        self._fence.leader_pid = None
