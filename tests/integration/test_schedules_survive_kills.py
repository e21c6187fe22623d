"""kill -9 at any point neither loses nor doubles an edge, and neither do several instances on one database."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from adapters.storage.sql import SqlDatabase
from domain.commands.model import ExecutionStatus
from support import empty_database, storage
from support.schedule_process import SLOTS, SqlScheduleWorld
from support.schedule_world import HOUR, NOW
from support.thoroughness import usual_or_thorough
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
STORED = [kind for kind in storage.STORAGES if kind != "memory"]


async def empty(kind: str, folder: Path) -> str:
    return empty_database.empty_sqlite(folder / "latchboard.db") if kind == "sqlite" else await empty_database.empty_postgres()


async def start(what: str, url: str, *more: str) -> Process:
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "support.schedule_process", what, url, *more, stdout=PIPE, env=environment
    )


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), TIMEOUT_S)).decode().strip()


async def populate(url: str) -> None:
    process = await start("populate", url)
    assert await line_of(process) == "done"
    assert await asyncio.wait_for(process.wait(), TIMEOUT_S) == 0


async def fire_and_kill(url: str, batches: int, pause_s: float) -> bool:
    """Kill the ticker some time after so many batches, in the next one or after it; True when it had done all by then."""
    process = await start("fire", url, str(batches + 1))
    try:
        for _ in range(batches):
            if await line_of(process) == "done":
                return True
        await asyncio.sleep(pause_s)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    return False


async def batches_until_done(url: str) -> int:
    process = await start("fire", url)
    try:
        batches = 0
        while await line_of(process) == "batch":
            batches += 1
        assert await asyncio.wait_for(process.wait(), TIMEOUT_S) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return batches


async def check_each_ran_once(url: str) -> None:
    engine = create_async_engine(url)
    try:
        async with engine.connect() as connection:

            async def counted(query: str) -> list[int]:
                return [row[0] for row in await connection.execute(text(query))]

            assert await counted("SELECT COUNT(*) FROM executions GROUP BY device_id") == [1] * SLOTS
            fired = "SELECT COUNT(*) FROM events WHERE kind = 'schedule_fired' GROUP BY device_id"
            assert await counted(fired) == [1] * SLOTS
            assert await counted("SELECT COUNT(*) FROM schedule_edges") == [SLOTS]
            assert await counted("SELECT COUNT(*) FROM schedules WHERE status = 'ACTIVE'") == [SLOTS]
            [[total, rows]] = await connection.execute(
                text("SELECT (SELECT SUM(total) FROM event_totals), (SELECT COUNT(*) FROM events)")
            )
            assert total == rows
    finally:
        await engine.dispose()


@pytest.mark.parametrize("kind", usual_or_thorough(["sqlite"], STORED))
async def test_each_edge_runs_once_whenever_the_process_is_killed(tmp_path: Path, kind: str) -> None:
    url = await empty(kind, tmp_path)
    await populate(url)
    chance = random.Random(7)
    kills = 0
    while not await fire_and_kill(url, chance.randint(1, 9), chance.uniform(0, 0.03)):
        kills += 1
        assert kills < 100
    assert kills >= 3
    await check_each_ran_once(url)


@pytest.mark.skipif("postgres" not in STORED, reason="several instances share a PostgreSQL database")
async def test_several_instances_run_each_edge_once(tmp_path: Path) -> None:
    url = await empty("postgres", tmp_path)
    await populate(url)
    did = await asyncio.wait_for(asyncio.gather(*[batches_until_done(url) for _ in range(3)]), TIMEOUT_S)
    assert sum(did) >= SLOTS // 3
    await check_each_ran_once(url)


@asynccontextmanager
async def stored_world(kind: str, folder: Path) -> AsyncIterator[SqlScheduleWorld]:
    database = SqlDatabase(await empty(kind, folder))
    await database.start()
    try:
        world = SqlScheduleWorld(database)
        await world.populate()
        yield world
    finally:
        await database.stop()


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("edited", [False, True])
async def test_a_slot_changed_in_its_due_second_runs_the_old_edge_or_the_new_one(tmp_path: Path, kind: str, edited: bool) -> None:
    due_ts, chance = NOW + 60, random.Random(11)

    async def change(world: SqlScheduleWorld, device: object) -> None:
        await asyncio.sleep(chance.uniform(0, 0.01))
        if edited:
            changes = {"off_ts": due_ts + 2 * HOUR, "on_ts": due_ts}
            await world.schedules.update(world.session(), device.device_id, 0, changes)  # type: ignore[attr-defined]
        else:
            await world.put(device, due_ts, due_ts + 2 * HOUR)  # type: ignore[arg-type]

    async def fire(world: SqlScheduleWorld) -> None:
        await asyncio.sleep(chance.uniform(0, 0.01))
        await world.firing.fire_due(world.clock.now_ms())

    async with stored_world(kind, tmp_path) as world:
        for _ in range(15):
            world.clock.ms = (due_ts - 30) * 1000
            device = await world.device()
            await world.put(device, due_ts, due_ts + HOUR)
            world.clock.ms = due_ts * 1000
            await asyncio.wait_for(asyncio.gather(change(world, device), fire(world), fire(world)), TIMEOUT_S)
            while await world.firing.fire_due(world.clock.now_ms()):
                pass
            async with world.uow.read() as tx:
                page = await tx.executions.page(device.device_id, limit=9)
            assert [(one.cmd, one.status) for one in page] == [("ON", ExecutionStatus.QUEUED)]
