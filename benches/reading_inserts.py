"""Two ways to store a batch of readings on PostgreSQL: processor time per reading of this process and of its server process.

    python benches/reading_inserts.py postgresql+asyncpg://user@host/empty_database [--rows 2000] [--rounds 40]

`arrays` is the service's way: one array per column, built by the driver from the engine's rows. `copy` sends bytes in COPY's binary
form, as an extension could build them, into a temporary table, and inserts from there what is not stored yet. The server must
run on this machine. The ways alternate; the figures are medians, the messages are new in each round.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import asyncpg

from adapters.storage.sql.database import SqlDatabase
from adapters.storage.sql.repositories.telemetry import ADD_MANY
from domain.kernel.clock import DAY_MS
from domain.telemetry.ports import PackedRow

DEVICES = 1_000
PACKED = bytes(30)
TICKS = os.sysconf("SC_CLK_TCK")
STAGING = "CREATE TEMP TABLE staged (device_no bigint, ts bigint, digest bigint, packed bytea) ON COMMIT DELETE ROWS"
FROM_STAGING = "INSERT INTO readings SELECT * FROM staged ON CONFLICT DO NOTHING"
_ROW = struct.Struct(">hiqiqiqi")


def make_rows(count: int, round_number: int, first_ms: int) -> Sequence[PackedRow]:
    return [(1 + n % DEVICES, first_ms + round_number * count + n, n * 40_503 % 2**31, PACKED) for n in range(count)]


def binary_form(rows: Sequence[PackedRow]) -> bytes:
    body = b"".join(_ROW.pack(4, 8, device, 8, ts, 8, digest, len(packed)) + packed for device, ts, digest, packed in rows)
    return b"PGCOPY\n\xff\r\n\0" + bytes(8) + body + b"\xff\xff"


def server_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def by_arrays(connection: asyncpg.Connection, rows: Sequence[PackedRow], _: bytes) -> None:
    await connection.execute(ADD_MANY.postgres_sql, *ADD_MANY.postgres_params(rows))


async def by_copy(connection: asyncpg.Connection, _: Sequence[PackedRow], body: bytes) -> None:
    await connection.copy_to_table("staged", source=_whole(body), format="binary")
    await connection.execute(FROM_STAGING)


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


Way = Callable[[asyncpg.Connection, Sequence[PackedRow], bytes], Awaitable[None]]
WAYS: dict[str, Way] = {"arrays": by_arrays, "copy": by_copy}


async def measure(url: str, count: int, rounds: int) -> None:
    database, now_ms = SqlDatabase(url), time.time_ns() // 1_000_000
    await database.start()
    async with database.uow.write() as tx:
        await tx.range_partitions.divide_past(now_ms // DAY_MS * DAY_MS)
        await tx.range_partitions.prepare(now_ms)
    await database.stop()
    connections = {way: await asyncpg.connect(url.replace("+asyncpg", "")) for way in WAYS}
    client: dict[str, list[float]] = {way: [] for way in WAYS}
    server_before = {}
    for way, connection in connections.items():
        await connection.execute(STAGING)
        server_before[way] = server_seconds(connection.get_server_pid())
    for number in range(rounds * len(WAYS)):
        way = list(WAYS)[number % len(WAYS)]
        rows = make_rows(count, number, now_ms)
        body = binary_form(rows)
        began = time.process_time()
        async with connections[way].transaction():
            await WAYS[way](connections[way], rows, body)
        client[way].append(time.process_time() - began)
    for way, connection in connections.items():
        served = server_seconds(connection.get_server_pid()) - server_before[way]
        here, there = 1e6 * statistics.median(client[way]) / count, 1e6 * served / (rounds * count)
        print(f"{way}: {here:.2f} us here, {there:.2f} us in the server, a reading; {count} readings a transaction")
    for connection in connections.values():
        await connection.close()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("url")
    arguments.add_argument("--rows", type=int, default=2_000)
    arguments.add_argument("--rounds", type=int, default=40)
    given = arguments.parse_args()
    asyncio.run(measure(given.url, given.rows, given.rounds))
