"""Webhook deliveries per second, from the claim to the stored result, signed, to fast receivers that are not the bottleneck.

    PYTHONPATH=src:tests python benches/bench_deliveries.py [--postgres] [--core] [--count 20000] [--profile FILE] [--event]

`--core`: the service has one processor to itself and the receivers have another. `--postgres`: in the database that
`LATCHBOARD_TEST_POSTGRES_URL` names, which is emptied. The deliveries are stored before the measurement starts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import gc
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import uvloop

from adapters.randomness import RandomIdAndSecretGenerator
from adapters.storage.sql.database import SqlDatabase
from loopback_peers import Receivers, Stopwatch, receivers
from support.empty_database import empty_postgres
from support.webhook_world import WebhookWorld

SERVICE_CORE, RECEIVER_CORE = 0, 1


@contextlib.asynccontextmanager
async def service(*, postgres: bool) -> AsyncIterator[WebhookWorld]:
    with tempfile.TemporaryDirectory() as folder:
        database = SqlDatabase(
            await empty_postgres() if postgres else f"sqlite+aiosqlite:///{folder}/bench.db", acquire_timeout_s=60
        )
        await database.start()
        world = WebhookWorld(database.unit_of_work, exclusive=not postgres)
        world.deliveries.ids = RandomIdAndSecretGenerator(world.clock.now_ms)  # ids that begin with the time, as in the program
        await world.populate()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)  # as the program does after its start
        yield world
        await world.courier.close()
        await database.stop()
        await asyncio.sleep(0.05)


async def owing(world: WebhookWorld, device: Any, events: int) -> None:
    for first in range(0, events, 500):
        async with world.uow.write() as tx:
            for number in range(first, min(first + 500, events)):
                tx.emit(world.domain_event("relay_changed", device.device_id, relay="ON", triggeredBy="device", number=number))


async def carried(world: WebhookWorld, count: int) -> None:
    """Wait until this many have been answered and stored."""
    aim = world.loop.succeeded + count
    task = asyncio.create_task(world.loop.run())
    async with asyncio.timeout(300):
        while world.loop.succeeded < aim or world.loop._ended_attempts:
            await asyncio.sleep(0.002)
    task.cancel()
    await asyncio.wait([task])


async def measured(
    there: Receivers, *, webhooks: int, count: int, postgres: bool, profile: str | None = None
) -> tuple[float, float, str]:
    """Deliveries per second, µs of processor time for each, and a line to print."""
    async with service(postgres=postgres) as world:
        device = await world.device()
        for _ in range(webhooks):
            await world.webhook(there.urls[0], device)
        warm, events = max(1, 1_000 // webhooks), max(1, count // webhooks)
        await owing(world, device, warm)
        await carried(world, warm * webhooks)
        await owing(world, device, events)
        count, turns = events * webhooks, world.loop.batches
        worked_before_s, profiler = there.worked_s(), cProfile.Profile()
        watch = Stopwatch()
        if profile is not None:
            profiler.enable()
        await carried(world, count)
        if profile is not None:
            profiler.disable()
            profiler.dump_stats(profile)
        wall_s, worked_s, threads = watch.read()
        shares = ", ".join(
            f"{name} {spent / count * 1e6:.0f}" for name, spent in sorted(threads.items(), key=lambda one: -one[1])[:4]
        )
        words = (
            f"{count / wall_s:.0f}/s, {worked_s / count * 1e6:.0f} µs each ({shares}), {count / (world.loop.batches - turns):.0f} a turn, "
            f"receivers at {(there.worked_s() - worked_before_s) / wall_s * 100:.0f} % of a core, load {os.getloadavg()[0]:.1f}"
        )
        return count / wall_s, worked_s / count * 1e6, words


@pytest.fixture(scope="module")
def fast() -> Iterator[Receivers]:
    with receivers(0) as there:
        yield there


@pytest.mark.parametrize("webhooks", [1, 50])
def bench_5000_deliveries_with_their_log(benchmark: Any, fast: Receivers, webhooks: int) -> None:
    def run() -> None:
        rate, each_us, _ = uvloop.run(measured(fast, webhooks=webhooks, count=5_000, postgres=False))
        benchmark.extra_info.update(per_second=round(rate), us_each=round(each_us))

    benchmark.pedantic(run, rounds=2, warmup_rounds=0)


async def event_cost_us(webhooks: int, *, postgres: bool, events: int = 400) -> float:
    """Processor time of this process for a transaction of one event, with its deliveries to this many webhooks, in µs. The median
    of five rounds."""
    async with service(postgres=postgres) as world:
        device = await world.device()
        for _ in range(webhooks):
            await world.webhook("http://127.0.0.1:1/", device)
        spent = []
        for _ in range(6):
            began = time.process_time()
            for number in range(events):
                async with world.uow.write() as tx:
                    tx.emit(world.domain_event("relay_changed", device.device_id, relay="ON", number=number))
            spent.append((time.process_time() - began) / events * 1e6)
        return statistics.median(spent[1:])


@pytest.mark.parametrize("webhooks", [0, 1, 50])
def bench_an_event_with_its_deliveries(benchmark: Any, webhooks: int) -> None:
    """Aim: fifty webhooks cost at most twice as much as none."""
    cost = benchmark.pedantic(lambda: uvloop.run(event_cost_us(webhooks, postgres=False)), rounds=1)
    benchmark.extra_info["cpu_us"] = round(cost)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--core", action="store_true")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--webhooks", type=int, nargs="*", default=[50, 5, 1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile")
    parser.add_argument("--event", action="store_true", help="only the cost of an event's transaction, by number of webhooks")
    wanted = parser.parse_args()
    if wanted.event:
        for webhooks in (0, 1, 5, 50):
            print(f"{webhooks} webhooks: {uvloop.run(event_cost_us(webhooks, postgres=wanted.postgres)):.0f} µs an event")
        return
    if wanted.core:
        os.sched_setaffinity(0, {SERVICE_CORE})
    with receivers(0, core=RECEIVER_CORE if wanted.core else None) as there:
        for webhooks in wanted.webhooks:
            rates = []
            for _ in range(wanted.rounds):
                rate, _, words = uvloop.run(
                    measured(there, webhooks=webhooks, count=wanted.count, postgres=wanted.postgres, profile=wanted.profile)
                )
                rates.append(rate)
                print(f"{webhooks} webhooks: {words}", flush=True)
            print(f"{webhooks} webhooks: median {statistics.median(rates):.0f}/s", flush=True)


if __name__ == "__main__":
    main()
