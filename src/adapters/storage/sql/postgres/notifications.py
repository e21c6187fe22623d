"""PostgreSQL tells every instance that the log has grown: LISTEN on one connection of its own, beside the pool.

A notification says only that there is more; what it is, each instance reads from the log itself. So one that is lost, with its
connection say, costs time and nothing else. The same connection holds the claim on the devices, which therefore ends with the
process, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import asyncpg
from sqlalchemy import make_url

from adapters.storage.sql.postgres.leader_fence import LEADER_LOCK_KEY, Fence
from domain.kernel.errors import Unavailable

CHANNEL = "latchboard_log"
HEARTBEAT_S = 10.0
STANDBY_POLL_S = 0.5
"""How often who waits asks whether the devices are free. PostgreSQL notices at once that a killed process is gone."""
ACQUIRE_TRIES, ACQUIRE_INTERVAL_S = 5, 0.2
REACQUIRE_TRIES = 25
"""Who held the devices and lost the connection has a better right to them than who waits; but not for long."""
KEEPALIVE_SETTINGS = {"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3"}
"""A machine that is gone without a word is noticed by the server after eleven seconds."""


class LeadershipLostError(Unavailable):
    """We held them. Somebody else does now."""

    code = "DEVICES_HELD_ELSEWHERE"


class PostgresListener:
    def __init__(
        self, url: str, *, heard: Callable[[], None], holds_devices: bool, fence: Fence | None = None, patience_s: float = 5.0
    ) -> None:
        """`heard` is called on the event loop's thread, also after each connect: something may have been missed. `fence`: what
        keeps this instance's writing for the devices to the time of its claim."""
        self._url = make_url(url)
        self._on_notify = heard
        self._is_candidate = holds_devices
        self._fence = fence or Fence()
        self._connect_timeout_s = patience_s
        self._connection: Any = None
        self._connection_lost = asyncio.Event()
        self.leadership_acquired = asyncio.Event()
        """The devices are this instance's; set once, because who loses them does not go on."""

    async def open(self) -> None:
        """Raises DevicesHeldElsewhere, Unavailable."""
        await self.close()
        _, options = self._url.get_dialect()().create_connect_args(self._url)
        try:
            connection = await asyncpg.connect(
                **options,
                timeout=self._connect_timeout_s,
                command_timeout=self._connect_timeout_s,
                server_settings=KEEPALIVE_SETTINGS,
            )
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise Unavailable(f"The database does not answer ({error}). Check LATCHBOARD_DATABASE_URL.") from error
        self._connection = connection
        self._connection_lost = lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        if self._is_candidate:
            await self._acquire_leadership()
        await connection.add_listener(CHANNEL, lambda *_: self._on_notify())
        self._on_notify()

    async def run_until_lost(self) -> None:
        """Opens what is not open, then raises Unavailable once the connection is lost."""
        if self._connection is None or self._connection_lost.is_set():
            await self.open()
        while not self._connection_lost.is_set():
            waits = self._is_candidate and not self.leadership_acquired.is_set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._connection_lost.wait(), STANDBY_POLL_S if waits else HEARTBEAT_S)
                break
            try:
                if not waits:
                    await self._connection.fetchval("SELECT 1")
                elif await self._try_acquire_leadership():
                    self.leadership_acquired.set()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                break
        await self.close()
        raise Unavailable("The connection that tells of other instances' events was lost; it is opened anew.")

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self._fence.leader_pid = None
        if connection is not None:
            connection.terminate()

    async def _acquire_leadership(self) -> None:
        held = self.leadership_acquired.is_set()
        for _ in range(REACQUIRE_TRIES if held else ACQUIRE_TRIES):
            if await self._try_acquire_leadership():
                self.leadership_acquired.set()
                return
            await asyncio.sleep(ACQUIRE_INTERVAL_S)
        if held:
            await self.close()
            raise LeadershipLostError(
                "The database did not hear from this instance for a while, and another one has taken the devices over. "
                "Start this one anew: it will wait beside the other."
            )

    async def _try_acquire_leadership(self) -> bool:
        if not await self._connection.fetchval("SELECT pg_try_advisory_lock($1)", LEADER_LOCK_KEY):
            return False
        if not await self._fence.drained(self._connection):
            await self._connection.execute("SELECT pg_advisory_unlock($1)", LEADER_LOCK_KEY)
            return False
        self._fence.leader_pid = self._connection.get_server_pid()
        return True
