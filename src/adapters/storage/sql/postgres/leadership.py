"""LISTEN on a connection of its own, beside the pool: PostgreSQL notifies every instance that the event log has grown.

A notification says only that there are new events; each instance reads them from the log. A lost notification, or a lost
connection, therefore costs time and no events. The same connection holds the leader lock and the lock of this process, and sends
this instance's notifications after its commits, one for all that happened meanwhile. (A notification sent by the transactions
themselves would make them commit one after the other, because PostgreSQL orders notifications.)

The advisory lock that makes one instance the leader: only the leader serves the devices.

The lock belongs to the listener's connection. PostgreSQL releases it when that connection ends, so it ends with the process,
however the process ends. A process that hangs, or whose network swallows its packets, does not end its connection. So the lock
is a lease: the leader sends a statement on this connection every second, and PostgreSQL notes when. A standby that finds no
statement for `LEASE_S` has PostgreSQL end the connection. The standby judges by PostgreSQL's clock alone. The leader judges by
its own: without a renewal for `OWN_LEASE_S` it closes itself to devices, before a standby lets them in.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

import asyncpg
from sqlalchemy import make_url

from adapters.storage.sql.postgres.backend import KEEPALIVE_SETTINGS
from adapters.storage.sql.postgres.leader_fence import LEADER_LOCK_KEY, PostgresLeaderFence
from adapters.storage.sql.probes import ADVISORY_LOCKS, process_lock_key
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


CHANNEL = "latchboard_log"
NOTIFY_INTERVAL_S = 0.01
"""At most one notification in this time: each one wakes all other instances."""
_NOTIFY = f"SELECT pg_notify('{CHANNEL}', '')"
_CONNECTION_ERRORS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class PostgresCoordinationConnection:
    def __init__(
        self,
        url: str,
        *,
        on_notify: Callable[[], None],
        process_id: bytes,
        session_name: str = "latchboard",
        leader_lock: DeviceLeaderLock | None = None,
        on_silence: Callable[[], None] = lambda: None,
        connect_timeout_s: float = 5.0,
    ) -> None:
        """`on_notify` is called on the event loop's thread, and also after each connect, because a notification may have been
        missed before. `process_id` counts as alive while the connection lasts. PostgreSQL shows `session_name` as its
        `application_name`. `leader_lock`: given if this instance may serve the devices. `on_silence` is called when PostgreSQL
        does not answer on this connection."""
        self._url = make_url(url)
        self._on_notify = on_notify
        self._process_id = process_id
        self._session_name = session_name
        self.leader_lock = leader_lock
        self._on_silence = on_silence
        self._connect_timeout_s = connect_timeout_s
        self._connection: Any = None
        self._connection_lost = asyncio.Event()
        self._attention = asyncio.Event()
        """The connection was lost, or a notification is to be sent."""
        self._notify_requested = False
        self.opened = 0
        """How often a connection has been opened."""

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection_lost.is_set()

    def readiness_errors(self) -> Mapping[str, str]:
        if self.is_open:
            return {}
        return {"notifications": "The connection for PostgreSQL's notifications is not open; it is tried again and again."}

    def request_notify(self) -> None:
        """Tell the other instances soon that the event log has grown. Call it on the event loop's thread."""
        self._notify_requested = True
        self._attention.set()

    async def open(self) -> None:
        """Raises LeadershipTakenOverError, Unavailable."""
        await self.close()
        try:
            await self._connect()
        except BaseException as error:
            await self.close()
            if isinstance(error, _CONNECTION_ERRORS):
                raise Unavailable(f"The database does not answer ({error}). Check LATCHBOARD_DATABASE_URL.") from error
            raise
        self.opened += 1
        self._on_notify()

    async def _connect(self) -> None:
        _, options = self._url.get_dialect()().create_connect_args(self._url)
        connection = await asyncpg.connect(
            **options,
            timeout=self._connect_timeout_s,
            command_timeout=self._connect_timeout_s,
            server_settings={**KEEPALIVE_SETTINGS, "application_name": self._session_name},
        )
        self._connection = connection
        self._connection_lost = lost = asyncio.Event()
        connection.add_termination_listener(lambda _: self._on_terminated(lost))
        await connection.execute("SELECT pg_try_advisory_lock($1)", process_lock_key(self._process_id))
        if self.leader_lock is not None:
            await self.leader_lock.acquire(connection)
        own_pid = connection.get_server_pid()
        await connection.add_listener(CHANNEL, lambda _, pid, *__: pid == own_pid or self._on_notify())

    async def run_until_lost(self) -> None:
        """Connects if necessary, then raises Unavailable once the connection is lost."""
        if not self.is_open:
            await self.open()
        clock = asyncio.get_running_loop().time
        renew_at = clock()
        while not self._connection_lost.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._attention.wait(), max(0.0, renew_at - clock()))
            self._attention.clear()
            if self._connection_lost.is_set():
                break
            try:
                if self._notify_requested:
                    self._notify_requested = False
                    await self._connection.fetchval(_NOTIFY)
                    await asyncio.sleep(NOTIFY_INTERVAL_S)
                if clock() >= renew_at:
                    renew_at = clock() + await self._renew()
            except TimeoutError:
                self._on_silence()
                break
            except _CONNECTION_ERRORS:
                break
        await self.close()
        raise Unavailable("The connection that receives notifications from PostgreSQL was lost. It is opened again.")

    async def _renew(self) -> float:
        """Renew the lease of the leader, or try to become it. Returns the seconds until the next time."""
        lock = self.leader_lock
        if lock is None:
            await self._connection.fetchval("SELECT 1")
        elif lock.acquired.is_set():
            await lock.renew(self._connection)
        elif not await lock.try_acquire(self._connection):
            return STANDBY_POLL_S
        return RENEW_INTERVAL_S

    def _on_terminated(self, lost: asyncio.Event) -> None:
        lost.set()
        self._attention.set()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if self.leader_lock is not None:
            self.leader_lock.on_connection_closed()
        if connection is not None:
            connection.terminate()
