"""LISTEN on a connection of its own, beside the pool: PostgreSQL notifies every instance that the event log has grown.

A notification says only that there are new events; each instance reads them from the log. A lost notification, or a lost
connection, therefore costs time and no events. The same connection holds the leader lock and the lock of this process, and sends
this instance's notifications after its commits, one for all that happened meanwhile. (A notification sent by the transactions
themselves would make them commit one after the other, because PostgreSQL orders notifications.)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import asyncpg
from sqlalchemy import make_url

from adapters.storage.sql.postgres.leader_lock import RENEW_INTERVAL_S, STANDBY_POLL_S, DeviceLeaderLock
from adapters.storage.sql.postgres.pool import KEEPALIVE_SETTINGS
from adapters.storage.sql.process_liveness_probe import process_lock_key
from domain.kernel.errors import Unavailable

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
