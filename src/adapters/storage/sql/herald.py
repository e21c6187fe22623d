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

from adapters.storage.sql.fence import DEVICES, Fence
from domain.kernel.errors import Unavailable

CHANNEL = "latchboard_log"
HEARTBEAT_S = 10.0
STANDBY_EVERY_S = 0.5
"""How often who waits asks whether the devices are free. PostgreSQL notices at once that a killed process is gone."""
CLAIM_TRIES, CLAIM_EVERY_S = 5, 0.2
RECLAIM_TRIES = 25
"""Who held the devices and lost the connection has a better right to them than who waits; but not for long."""
ALIVE = {"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3"}
"""A machine that is gone without a word is noticed by the server after eleven seconds."""


class DevicesHeldElsewhere(Unavailable):
    """We held them. Somebody else does now."""

    code = "DEVICES_HELD_ELSEWHERE"


class PostgresHerald:
    def __init__(
        self, url: str, *, heard: Callable[[], None], holds_devices: bool, fence: Fence | None = None, patience_s: float = 5.0
    ) -> None:
        """`heard` is called on the event loop's thread, also after each connect: something may have been missed. `fence`: what
        keeps this instance's writing for the devices to the time of its claim."""
        self._url = make_url(url)
        self._heard = heard
        self._holds_devices = holds_devices
        self._fence = fence or Fence()
        self._patience_s = patience_s
        self._connection: Any = None
        self._lost = asyncio.Event()
        self.claimed = asyncio.Event()
        """The devices are this instance's; set once, because who loses them does not go on."""

    async def open(self) -> None:
        """Raises DevicesHeldElsewhere, Unavailable."""
        await self.close()
        _, options = self._url.get_dialect()().create_connect_args(self._url)
        try:
            connection = await asyncpg.connect(
                **options, timeout=self._patience_s, command_timeout=self._patience_s, server_settings=ALIVE
            )
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise Unavailable(f"The database does not answer ({error}). Check LATCHBOARD_DATABASE_URL.") from error
        self._connection = connection
        self._lost = lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        if self._holds_devices:
            await self._claim()
        await connection.add_listener(CHANNEL, lambda *_: self._heard())
        self._heard()

    async def keep(self) -> None:
        """Opens what is not open, then raises Unavailable once the connection is lost."""
        if self._connection is None or self._lost.is_set():
            await self.open()
        while not self._lost.is_set():
            waits = self._holds_devices and not self.claimed.is_set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._lost.wait(), STANDBY_EVERY_S if waits else HEARTBEAT_S)
                break
            try:
                if not waits:
                    await self._connection.fetchval("SELECT 1")
                elif await self._try_claim():
                    self.claimed.set()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                break
        await self.close()
        raise Unavailable("The connection that tells of other instances' events was lost; it is opened anew.")

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self._fence.claimed_by = None
        if connection is not None:
            connection.terminate()

    async def _claim(self) -> None:
        held = self.claimed.is_set()
        for _ in range(RECLAIM_TRIES if held else CLAIM_TRIES):
            if await self._try_claim():
                self.claimed.set()
                return
            await asyncio.sleep(CLAIM_EVERY_S)
        if held:
            await self.close()
            raise DevicesHeldElsewhere(
                "The database did not hear from this instance for a while, and another one has taken the devices over. "
                "Start this one anew: it will wait beside the other."
            )

    async def _try_claim(self) -> bool:
        if not await self._connection.fetchval("SELECT pg_try_advisory_lock($1)", DEVICES):
            return False
        if not await self._fence.passed(self._connection):
            await self._connection.execute("SELECT pg_advisory_unlock($1)", DEVICES)
            return False
        self._fence.claimed_by = self._connection.get_server_pid()
        return True
