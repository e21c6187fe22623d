"""Two programs on one database (a SQLite file or PostgreSQL), with one account."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from domain.kernel.errors import DomainError
from domain.team.operator import CreatedAccountWithOwner
from support import postgres
from support.empty_database import empty_postgres, empty_sqlite
from support.in_process_app import ApiCaller, InProcessApp, in_process_app
from support.waiting import TIMEOUT_S

DATABASES = ["sqlite", *(["postgres"] if postgres.available() else [])]
KEY_RING = "first:" + base64.b64encode(bytes(range(32))).decode()
NEW_DEVICE = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
SQLITE_WAIT_S = 0.2
"""After this time a second writer waits for certain. SQLite does not report who waits."""


@dataclass
class TwoInstances:
    first: InProcessApp
    second: InProcessApp
    account: CreatedAccountWithOwner
    owner: ApiCaller
    """Services and caller of the first instance; `at_two`: the same caller at the second."""
    owner_at_second: ApiCaller
    database: str = "postgres"

    async def call_both(self, times: int, call: Callable[[InProcessApp], Awaitable[Any]]) -> list[Any]:
        """Make `times` concurrent calls, half of them at each program; domain errors are results."""
        calls = (call((self.first, self.second)[number % 2]) for number in range(times))
        found = await asyncio.gather(*calls, return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, DomainError):
                raise one
        return list(found)

    async def wait_for_blocked_transactions(self, for_a_lock: int = 1) -> None:
        """Wait until the database reports this many transactions that wait for a lock."""
        if self.database == "sqlite":
            await asyncio.sleep(SQLITE_WAIT_S)
            return
        connection = await asyncpg.connect(postgres.plain_url())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
                while await connection.fetchval(query) < for_a_lock:
                    await asyncio.sleep(0.01)
        finally:
            await connection.close()


@asynccontextmanager
async def two_instances(folder: Path, database: str = "postgres") -> AsyncIterator[TwoInstances]:
    url = await empty_postgres() if database == "postgres" else empty_sqlite(folder / "both.db")
    async with AsyncExitStack() as stack:
        made = []
        for name in ("one", "two"):
            program = in_process_app(folder / name, database_url=url, secret_keys=KEY_RING)
            made.append(await stack.enter_async_context(program))
        account = await made[0].create_account("owner@example.com")
        owner = await made[0].sign_in("owner@example.com")
        yield TwoInstances(made[0], made[1], account, owner, made[1].caller(**owner.headers), database)


@asynccontextmanager
async def concurrent_change(
    pair: TwoInstances, other: Coroutine[Any, Any, httpx.Response], status: int = 200
) -> AsyncIterator[Any]:
    """A transaction of the first program. While its body runs, `other` is in flight and waits; then it is answered with
    `status`."""
    task: asyncio.Task[httpx.Response] | None = None

    async def send() -> None:
        nonlocal task
        task = asyncio.create_task(other)
        await pair.wait_for_blocked_transactions()
        assert not task.done()

    async with pair.first.services.uow.write() as tx:
        yield tx, send
    assert task is not None
    answer = await task
    assert answer.status_code == status, answer.text
