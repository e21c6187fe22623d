"""SQLite throughput through the unit of work: durable one-row transactions, readings, and concurrent reads.

Under pytest-benchmark each function is one measurement. Run as a program (`python benches/bench_storage.py [directory]`), it also
prints latencies, which a mean hides. The directory decides which disk is measured.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import uvloop

from adapters.storage.sql import SqlDatabase
from domain.accounts.model import Account
from domain.sign_in.model import LoginFailures

ROWS = 100_000
ROWS_A_BATCH = 2_000
DEVICES = 1_000
PACKED = bytes(60)
"""Five metrics, packed."""

_numbers = count()


class Bench:
    """A database on its own loop, so that a synchronous benchmark can call it."""

    def __init__(self, directory: Path) -> None:
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.path = directory / f"bench-{next(_numbers)}.db"
        self.database = SqlDatabase(f"sqlite+aiosqlite:///{self.path}", acquire_timeout_s=30)
        self.runner.run(self._start())

    async def _start(self) -> None:
        await self.database.start()
        async with self.database.uow.write() as tx:
            await tx.accounts.add(Account("acc_1", "Acme", "free", 1))  # type: ignore[arg-type]

    def run(self, work: Awaitable[Any]) -> Any:
        return self.runner.run(work)  # type: ignore[arg-type]

    def close(self) -> None:
        self.runner.run(self.database.stop())
        self.runner.close()

    async def commit(self) -> None:
        async with self.database.uow.write() as tx:
            await tx.login_failures.upsert(LoginFailures(f"email:{next(_numbers)}", 1, 1, 1))

    async def read(self) -> None:
        async with self.database.uow.read() as tx:
            await tx.accounts.get("acc_1")

    async def producers(self, number: int, each: int, job: Callable[[], Awaitable[None]]) -> list[float]:
        """The seconds of each job."""
        took: list[float] = []

        async def one() -> None:
            for _ in range(each):
                begun = time.perf_counter()
                await job()
                took.append(time.perf_counter() - begun)

        await asyncio.gather(*[one() for _ in range(number)])
        return took

    async def store(self, rows: list[tuple[int, int, int, bytes]]) -> None:
        for start in range(0, len(rows), ROWS_A_BATCH):
            async with self.database.uow.write() as tx:
                await tx.readings.add_many(rows[start : start + ROWS_A_BATCH])


def readings() -> list[tuple[int, int, int, bytes]]:
    base = next(_numbers) * ROWS
    return [(number % DEVICES, base + number, 7, PACKED) for number in range(ROWS)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def test_one_producer_commits_a_row_at_a_time(benchmark: Any, bench: Bench) -> None:
    benchmark(lambda: bench.run(bench.commit()))


def test_64_producers_share_their_commits(benchmark: Any, bench: Bench) -> None:
    benchmark.extra_info["rows"] = 64 * 20
    benchmark(lambda: bench.run(bench.producers(64, 20, bench.commit)))


def test_a_read_of_one_row_in_its_own_snapshot(benchmark: Any, bench: Bench) -> None:
    benchmark(lambda: bench.run(bench.read()))


def test_readings_in_batches(benchmark: Any, bench: Bench) -> None:
    benchmark.extra_info["rows"] = ROWS
    benchmark.pedantic(lambda rows: bench.run(bench.store(rows)), setup=lambda: ((readings(),), {}), rounds=3)


def test_readings_in_batches_by_bare_sqlite(benchmark: Any, tmp_path: Path) -> None:
    """The upper bound: the same rows with the same durability in plain SQLite."""
    benchmark.extra_info["rows"] = ROWS
    connection = bare(tmp_path / "bare.db")
    benchmark.pedantic(lambda rows: store_bare(connection, rows), setup=lambda: ((readings(),), {}), rounds=3)
    connection.close()


def bare(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA cache_size=-64000")
    connection.execute("CREATE TABLE readings (device_no, ts, digest, packed, PRIMARY KEY (device_no, ts, digest)) WITHOUT ROWID")
    return connection


def store_bare(connection: sqlite3.Connection, rows: list[tuple[int, int, int, bytes]]) -> None:
    for start in range(0, len(rows), ROWS_A_BATCH):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT OR IGNORE INTO readings VALUES (?, ?, ?, ?)", rows[start : start + ROWS_A_BATCH])
        connection.execute("COMMIT")


def report(directory: Path) -> None:
    bench = Bench(directory)
    for number, each in ((1, 2000), (64, 200), (256, 60)):
        processor, begun = time.process_time(), time.perf_counter()
        took = sorted(bench.run(bench.producers(number, each, bench.commit)))
        _line(f"one-row commits, {number} producers", took, time.perf_counter() - begun, time.process_time() - processor)
    for number, each in ((1, 3000), (64, 100)):
        processor, begun = time.process_time(), time.perf_counter()
        took = sorted(bench.run(bench.producers(number, each, bench.read)))
        _line(f"one-row reads, {number} readers", took, time.perf_counter() - begun, time.process_time() - processor)
    took = sorted(bench.run(_beside(bench)))
    _line("one-row reads beside 64 producers", took, sum(took), 0.0)
    rows, begun = readings(), time.perf_counter()
    bench.run(bench.store(rows))
    print(f"readings, {ROWS_A_BATCH} rows a batch: {ROWS / (time.perf_counter() - begun):,.0f} rows/s")
    connection, rows, begun = bare(directory / "bare.db"), readings(), time.perf_counter()
    store_bare(connection, rows)
    print(f"the same by bare sqlite3: {ROWS / (time.perf_counter() - begun):,.0f} rows/s")
    connection.close()
    bench.close()


async def _beside(bench: Bench) -> list[float]:
    writing = asyncio.create_task(bench.producers(64, 200, bench.commit))
    took = await bench.producers(1, 500, bench.read)
    await writing
    return took


def _line(what: str, took: list[float], wall_s: float, processor_s: float) -> None:
    rate, p50, p99 = len(took) / wall_s, took[len(took) // 2] * 1e3, took[int(len(took) * 0.99)] * 1e3
    print(f"{what}: {rate:,.0f}/s, p50 {p50:.2f} ms, p99 {p99:.2f} ms, {processor_s / len(took) * 1e6:.0f} µs of processor")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as temporary:
        report(Path(temporary))
