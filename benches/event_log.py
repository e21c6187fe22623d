"""The cost of a log of millions of events: a page, a total, a resume and a step of retention, with the query plans.

    python benches/event_log.py load URL --events 5000000     fill an empty database
    python benches/event_log.py query URL                     pages, totals, a device's log, resume; medians of 15, and the plans
    python benches/event_log.py forget URL                    retention in steps, and what a writer waits meanwhile
    python benches/event_log.py write URL --writers 32        transactions of one event, with writer numbers and with one lock

URL is `sqlite+aiosqlite:///FILE` or `postgresql+asyncpg://…`. One account, 1,000 devices of which one has a fifth of all events,
twelve kinds of which one is rare. Figures are printed, nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sqlalchemy import text

from adapters.randomness import RandomIdAndSecretGenerator
from adapters.storage.sql.database import SqlDatabase
from adapters.storage.sql.repositories import events
from adapters.storage.sql.repositories import events as queries
from adapters.storage.sql.repositories.events import RESERVE_POSITIONS
from adapters.storage.sql.session import POSTGRES, SQLITE
from domain.accounts.model import Account
from domain.events.cursors import EventLogCursor
from domain.events.dispatcher import EventDispatcher
from domain.events.model import Event
from domain.kernel.ids import AccountId, DeviceId, EventId, IdPrefix
from support.postgres import binaries
from support.sealing import seal

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


def event(number: int, ids: RandomIdAndSecretGenerator) -> Event:
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
    return database, database.unit_of_work(EventDispatcher(ids=RandomIdAndSecretGenerator(), observers=[], feed=Unheard()))


async def load(url: str, count: int) -> None:
    database, uow = await opened(url)
    ids = RandomIdAndSecretGenerator()
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
        last = (await tx.events.end()).highest
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
            await tx.events.list_public_after(ACCOUNT, EventLogCursor(last // 2), 500)

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
        "at_upto": 10**9,
        "at_lowest": 9,
        "at_seen": [],
        "at_base": 9,
    }
    dialect = SQLITE if database.file else POSTGRES
    shapes = {
        "resume": queries.LIST_PUBLIC_AFTER[dialect],
        "device": queries.DEVICE_LOG_BEFORE,
        "forget": events.DELETE_COVERED[dialect],
    }
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
    ids, waits, gone = RandomIdAndSecretGenerator(), [], 0
    done = asyncio.Event()
    await seal(uow, START_MS)

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


_ONE_LOCK = "SELECT pg_advisory_xact_lock(1), pg_notify('bench_log', '');\n"
"""The lower bound: one lock for the whole log, held until the commit, and a notification in the same transaction."""
_ONE_LOCK_RESERVES = "SELECT 0 AS writer, nextval('events_position_seq') AS position"
_ONE_EVENT = f"""
INSERT INTO events (position, event_id, account_id, device_id, device_name, kind, description, at_ms, source, address, payload, public, writer, sequence, hash)
  VALUES (:position, 'evt_' || :position, '{ACCOUNT}', 'dev_' || :client_id, 'Pump', 'relay_changed', 'Switched on', :position, 'device',
          '192.0.2.7', '{{"type": "relay_changed", "relay": "ON"}}', true, :writer, :position, '');
INSERT INTO event_totals (account_id, writer, total) VALUES ('{ACCOUNT}', :writer, 1)
  ON CONFLICT (account_id, writer) DO UPDATE SET total = event_totals.total + 1;
INSERT INTO event_counts (account_id, kind, device_id, writer, total) VALUES ('{ACCOUNT}', 'relay_changed', 'dev_' || :client_id, :writer, 1)
  ON CONFLICT (account_id, kind, device_id, writer) DO UPDATE SET total = event_counts.total + 1;
"""


async def write(url: str, writers: int, seconds: int) -> None:
    """The server's own limit: pgbench runs the statements of a transaction with one event."""
    database, uow = await opened(url)
    async with uow.write() as tx:
        await tx.accounts.add(Account(ACCOUNT, "Acme", "free", 0))
    await database.stop()
    reserve = str(RESERVE_POSITIONS).replace(":at_count", "1").replace(":at_accounts", f"ARRAY['{ACCOUNT}']")
    reserve = reserve.replace(
        "array_agg(position ORDER BY position) FROM given) AS positions", "min(position) FROM given) AS position"
    )
    scripts = {"writer numbers": ("", reserve), "one lock": (_ONE_LOCK, _ONE_LOCK_RESERVES)}
    rates: dict[str, list[float]] = {how: [] for how in scripts}
    for how in [*scripts, *scripts]:
        before, reserves = scripts[how]
        script = f"BEGIN;\n{before}{' '.join(reserves.split())} \\gset\n{_ONE_EVENT}COMMIT;\n"
        rates[how].append(await asyncio.to_thread(_pgbench, url.replace("+asyncpg", ""), script, writers, seconds))
        print(f"{how}: {rates[how][-1]:.0f} transactions/s", flush=True)
    print(f"{max(rates['writer numbers']) / max(rates['one lock']):.1f} times the transactions with one lock, {writers} writers")


def _pgbench(url: str, script: str, writers: int, seconds: int) -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        program = (binaries() or Path("/usr/bin")) / "pgbench"
        command = [str(program), "-n", "-c", str(writers), "-T", str(seconds), "-M", "prepared", "-f", file.name, url]
        shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 60).stdout
    return float(shown.partition("tps = ")[2].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("act", choices=["load", "query", "forget", "write"])
    parser.add_argument("url")
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--writers", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=5)
    given = parser.parse_args()
    acts: dict[str, Callable[[], Any]] = {
        "load": lambda: load(given.url, given.events),
        "query": lambda: query(given.url),
        "forget": lambda: forget(given.url),
        "write": lambda: write(given.url, given.writers, given.seconds),
    }
    asyncio.run(acts[given.act]())


if __name__ == "__main__":
    main()
