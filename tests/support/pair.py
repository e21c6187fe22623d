"""Two whole programs over one database, SQLite's file or PostgreSQL, and one account that both know."""

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

from domain.accounts.administration import CreatedAccount
from domain.kernel.errors import DomainError
from support import postgres
from support.storage import emptied
from support.whole import Caller, Whole, whole

DATABASES = ["sqlite", *(["postgres"] if postgres.available() else [])]
RING = "first:" + base64.b64encode(bytes(range(32))).decode()
NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
PATIENCE_S = 15.0
A_WHILE_S = 0.2
"""In which SQLite, which tells nobody who waits, surely had somebody wait."""


@dataclass
class Pair:
    one: Whole
    two: Whole
    account: CreatedAccount
    owner: Caller
    """Of the first; `at_two` is the same person at the second."""
    at_two: Caller
    database: str = "postgres"

    async def both(self, times: int, call: Callable[[Whole], Awaitable[Any]]) -> list[Any]:
        """`times` calls at once, half of them at each program; errors of the domain are results."""
        calls = (call((self.one, self.two)[number % 2]) for number in range(times))
        found = await asyncio.gather(*calls, return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, DomainError):
                raise one
        return list(found)

    async def somebody_waits(self, for_a_lock: int = 1) -> None:
        """Until the database says that this many transactions wait for a lock."""
        if self.database == "sqlite":
            await asyncio.sleep(A_WHILE_S)
            return
        connection = await asyncpg.connect(postgres.plain_url())
        try:
            async with asyncio.timeout(PATIENCE_S):
                asked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
                while await connection.fetchval(asked) < for_a_lock:
                    await asyncio.sleep(0.01)
        finally:
            await connection.close()


@asynccontextmanager
async def paired(folder: Path, database: str = "postgres") -> AsyncIterator[Pair]:
    url = await emptied() if database == "postgres" else f"sqlite+aiosqlite:///{folder / 'both.db'}"
    async with AsyncExitStack() as stack:
        made = []
        for name in ("one", "two"):
            program = whole(folder / name, database_url=url, secret_keys=RING)
            made.append(await stack.enter_async_context(program))
        account = await made[0].account("owner@example.com")
        owner = await made[0].sign_in("owner@example.com")
        yield Pair(made[0], made[1], account, owner, made[1].caller(**owner.headers), database)


@asynccontextmanager
async def changing(pair: Pair, other: Coroutine[Any, Any, httpx.Response], status: int = 200) -> AsyncIterator[Any]:
    """A transaction of the first program, during whose body `other` is on its way and has to wait; it is then answered with
    `status`."""
    task: asyncio.Task[httpx.Response] | None = None

    async def send() -> None:
        nonlocal task
        task = asyncio.create_task(other)
        await pair.somebody_waits()
        assert not task.done()

    async with pair.one.services.uow.write() as tx:
        yield tx, send
    assert task is not None
    answer = await task
    assert answer.status_code == status, answer.text
