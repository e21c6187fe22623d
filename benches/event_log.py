"""The cost of a log of millions of events: a page, a total, a resume and a step of retention, with the query plans.

    python benches/event_log.py load URL --events 5000000     fill an empty database
    python benches/event_log.py query URL                     pages, totals, a device's log, resume; medians of 15, and the plans
    python benches/event_log.py forget URL                    retention in steps, and what a writer waits meanwhile

URL is `sqlite+aiosqlite:///FILE` or `postgresql+asyncpg://…`. One account, 1,000 devices of which one has a fifth of all events,
twelve kinds of which one is rare. Figures are printed, nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sqlalchemy import text

from adapters.id_generator import RandomIdGenerator
from adapters.storage.sql.database import SqlDatabase
from adapters.storage.sql.repositories import events as queries
from adapters.storage.sql.session import SQLITE
from domain.accounts.model import Account
from domain.events.model import Event
from domain.events.service import EventLogDispatcher
from domain.kernel.ids import AccountId, DeviceId, EventId, IdPrefix

ACCOUNT = AccountId("acc_00000000000000000000")
DEVICES = [DeviceId(f"dev_{number:020d}") for number in range(1_000)]
BUSY = DEVICES[0]
KINDS = (
    "relay_changed",
    "command_sent",
    "command_result",
    "schedule_fired",
    "device_online",
    "device_offline",
    "rule_matched",
    "approval_requested",
    "grant_created",
    "member_changed",
    "access_refused",
)
RARE = "credentials_revealed"
BATCH = 2_000
START_MS = 1_750_000_000_000


class Unheard:
    def publish(self, event: Event) -> None: ...
    def set_store_time(self, store_time_s: int) -> None: ...


def event(number: int, ids: RandomIdGenerator) -> Event:
    device = BUSY if number % 5 == 0 else DEVICES[number * 7 % 999 + 1]
    kind = RARE if number % 500_000 == 250_000 else KINDS[number * 11 % 97 % len(KINDS)]
    payload: dict[str, Any] = {"type": kind, "deviceId": device, "relay": "ON", "triggeredBy": "device", "timestamp": START_MS}
    description = "Switched on by the device"
    return Event(
        0,
        EventId(ids.new_id(IdPrefix.EVENT)),
        ACCOUNT,
        device,
        "Pump",
        kind,
        description,
        START_MS + number * 6,
        "device",
        "192.0.2.7",
        payload,
    )


async def opened(url: str) -> tuple[SqlDatabase, Any]:
    database = SqlDatabase(url)
    await database.start()
    return database, database.unit_of_work(EventLogDispatcher(ids=RandomIdGenerator(), observers=[], feed=Unheard()))


async def load(url: str, count: int) -> None:
    database, uow = await opened(url)
    ids = RandomIdGenerator()
    async with uow.write() as tx:
        await tx.accounts.add(Account(ACCOUNT, "Acme", "free", 0))
    began = time.perf_counter()
    for first in range(0, count, BATCH):
        async with uow.write() as tx:
            await tx.events.append_many([event(number, ids) for number in range(first, first + BATCH)])
    print(f"{count / (time.perf_counter() - began):.0f} events/s into the log, {BATCH} a transaction")
    await database.stop()


async def timed(name: str, query: Callable[[], Awaitable[Any]]) -> None:
    await query()
    took = []
    for _ in range(15):
        began = time.perf_counter()
        await query()
        took.append((time.perf_counter() - began) * 1000)
    print(f"{name}: median {statistics.median(took):.2f} ms, longest {max(took):.2f} ms", flush=True)


async def query(url: str) -> None:
    database, uow = await opened(url)
    async with uow.read() as tx:
        last = await tx.events.last_position()
    filters: list[dict[str, Any]] = [
        {},
        {"kind": "relay_changed"},
        {"kind": RARE},
        {"device_id": BUSY},
        {"device_id": DEVICES[500]},
        {"kind": RARE, "device_id": BUSY},
        {"kind": "relay_changed", "device_id": BUSY},
        {"kind": "never"},
    ]
    for chosen in filters:
        for before in (None, last // 10):

            async def page(chosen: dict[str, Any] = chosen, before: int | None = before) -> None:
                async with uow.read() as tx:
                    await tx.events.page(ACCOUNT, limit=51, before=before, **chosen)
                    await tx.events.count(ACCOUNT, kind=chosen.get("kind"), device_id=chosen.get("device_id"))

            await timed(f"page and total of {chosen}, before {before}", page)

    async def resume() -> None:
        async with uow.read() as tx:
            await tx.events.list_public_after(ACCOUNT, last // 2, 500)

    async def device() -> None:
        async with uow.read() as tx:
            await tx.events.list_by_device(BUSY, limit=50, before_ms=START_MS + last * 3)

    await timed("500 to resume with, from the middle", resume)
    await timed("a device's log, from the middle", device)
    await plans(database, uow)
    await database.stop()


async def plans(database: SqlDatabase, uow: Any) -> None:
    given = {
        "at_account": ACCOUNT,
        "at_kind": "relay_changed",
        "at_device": BUSY,
        "at_before": 10**9,
        "at_limit": 51,
        "at_after": 9,
    }
    shapes = {"resume": queries.LIST_PUBLIC_AFTER, "device": queries.DEVICE_LOG_BEFORE, "forget": queries.DELETE_OLDER_THAN}
    shapes |= {
        f"page {kind=} {device=}": queries.page_statement(True, kind, device)
        for kind in (False, True)
        for device in (False, True)
    }
    shapes |= {
        f"total {kind=} {device=}": queries.count_statement(kind, device)
        for kind, device in ((True, False), (False, True), (True, True))
    }
    async with uow.read() as tx:
        session = tx.events._session
        how = "EXPLAIN QUERY PLAN " if session.dialect == SQLITE else "EXPLAIN "
        for name, shape in shapes.items():
            compiled = shape.compile(dialect=database.dialect) if hasattr(database, "dialect") else shape.compile()
            known = {key: value for key, value in given.items() if f":{key}" in str(compiled)}
            rows = await session.read(text(how + str(compiled)), **known)
            print(name, "→", [str(row[-1]).strip() for row in rows if "Sort Key" not in str(row[-1])][:6])


async def forget(url: str) -> None:
    database, uow = await opened(url)
    ids, waits, gone = RandomIdGenerator(), [], 0
    done = asyncio.Event()

    async def write() -> None:
        while not done.is_set():
            began = time.perf_counter()
            async with uow.write() as tx:
                await tx.events.append_many([event(10**9, ids)])
            waits.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.005)

    writing = asyncio.create_task(write())
    began = time.perf_counter()
    while gone < 200_000:
        async with uow.write() as tx:
            gone += await tx.events.delete_older_than(START_MS + 10**12, 2_000)
        await asyncio.sleep(0.02)
    took = time.perf_counter() - began
    done.set()
    await writing
    cuts = statistics.quantiles(waits, n=100)
    print(
        f"{gone / took:.0f} events/s forgotten; writers meanwhile p50 {cuts[49]:.1f}, p99 {cuts[98]:.1f}, longest {max(waits):.0f} ms"
    )
    await database.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("act", choices=["load", "query", "forget"])
    parser.add_argument("url")
    parser.add_argument("--events", type=int, default=5_000_000)
    given = parser.parse_args()
    acts: dict[str, Callable[[], Any]] = {
        "load": lambda: load(given.url, given.events),
        "query": lambda: query(given.url),
        "forget": lambda: forget(given.url),
    }
    asyncio.run(acts[given.act]())


if __name__ == "__main__":
    main()
