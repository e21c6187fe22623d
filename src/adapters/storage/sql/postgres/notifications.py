"""LISTEN on a connection of its own, beside the pool: PostgreSQL notifies every instance that the event log has grown.

A notification says only that there are new events; each instance reads them from the log. A lost notification, or a lost
connection, therefore costs time and no events. The same connection holds the leader lock and the lock of this process, and sends
this instance's notifications after its commits, one for all that happened meanwhile. (A notification sent by the transactions
themselves would make them commit one after the other, because PostgreSQL orders notifications.)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import asyncpg
from sqlalchemy import make_url

from adapters.storage.sql.postgres.leader_lock import RENEW_INTERVAL_S, STANDBY_POLL_S, DeviceLeaderLock, LeadershipLostError
from adapters.storage.sql.process_lock import process_lock_key
from domain.kernel.errors import Unavailable

CHANNEL = "latchboard_log"
KEEPALIVE_SETTINGS = {"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3"}
"""The server notices after eleven seconds that a machine has vanished."""
NOTIFY_INTERVAL_S = 0.01
"""At most one notification in this time: each one wakes all other instances."""
_NOTIFY = f"SELECT pg_notify('{CHANNEL}', '')"
_CONNECTION_ERRORS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


class PostgresListener:
    def __init__(
        self,
        url: str,
        *,
        on_notify: Callable[[], None],
        process_id: bytes,
        leader_lock: DeviceLeaderLock | None = None,
        connect_timeout_s: float = 5.0,
    ) -> None:
        """`on_notify` is called on the event loop's thread, and also after each connect, because a notification may have been
        missed before. `process_id` counts as alive while the connection lasts. `leader_lock`: given if this instance may serve
        the devices."""
        self._url = make_url(url)
        self._on_notify = on_notify
        self._process_id = process_id
        self.leader_lock = leader_lock
        self._connect_timeout_s = connect_timeout_s
        self._connection: Any = None
        self._connection_lost = asyncio.Event()
        self._attention = asyncio.Event()
        """The connection was lost, or a notification is to be sent."""
        self._notify_requested = False

    def request_notify(self) -> None:
        """Tell the other instances soon that the event log has grown. Call it on the event loop's thread."""
        self._notify_requested = True
        self._attention.set()

    async def open(self) -> None:
        """Raises LeadershipLostError, Unavailable."""
        await self.close()
        _, options = self._url.get_dialect()().create_connect_args(self._url)
        try:
            connection = await asyncpg.connect(
                **options,
                timeout=self._connect_timeout_s,
                command_timeout=self._connect_timeout_s,
                server_settings=KEEPALIVE_SETTINGS,
            )
        except _CONNECTION_ERRORS as error:
            raise Unavailable(f"The database does not answer ({error}). Check LATCHBOARD_DATABASE_URL.") from error
        self._connection = connection
        self._connection_lost = lost = asyncio.Event()
        connection.add_termination_listener(lambda _: self._on_terminated(lost))
        await connection.execute("SELECT pg_try_advisory_lock($1)", process_lock_key(self._process_id))
        if self.leader_lock is not None:
            try:
                await self.leader_lock.acquire(connection)
            except LeadershipLostError:
                await self.close()
                raise
        own_pid = connection.get_server_pid()
        await connection.add_listener(CHANNEL, lambda _, pid, *__: pid == own_pid or self._on_notify())
        self._on_notify()

    async def run_until_lost(self) -> None:
        """Connects if necessary, then raises Unavailable once the connection is lost."""
        if self._connection is None or self._connection_lost.is_set():
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
