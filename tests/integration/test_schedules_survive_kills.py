"""kill -9 at any point neither loses nor doubles an edge."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from support.schedule_process import SLOTS

ROOT = Path(__file__).parents[2]


async def start(what: str, database: Path) -> Process:
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "support.schedule_process", what, str(database), stdout=PIPE, env=environment
    )


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()


async def fire_and_kill(database: Path, batches: int, pause_s: float) -> bool:
    """Kill the ticker some time after so many batches; True when it had done all by then."""
    process = await start("fire", database)
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


def counted(database: Path, query: str) -> list[int]:
    with sqlite3.connect(database) as connection:
        return [row[0] for row in connection.execute(query)]


async def test_each_edge_runs_once_whenever_the_process_is_killed(tmp_path: Path) -> None:
    database = tmp_path / "latchboard.db"
    process = await start("populate", database)
    assert await line_of(process) == "done"
    assert await asyncio.wait_for(process.wait(), 30) == 0
    chance = random.Random(7)
    kills = 0
    while not await fire_and_kill(database, chance.randint(1, 9), chance.uniform(0, 0.03)):
        kills += 1
        assert kills < 100
    assert kills >= 3
    per_device = "SELECT COUNT(*) FROM {} GROUP BY device_id"
    assert counted(database, per_device.format("executions")) == [1] * SLOTS
    assert counted(database, "SELECT COUNT(*) FROM events WHERE kind = 'schedule_fired' GROUP BY device_id") == [1] * SLOTS
    assert counted(database, "SELECT COUNT(*) FROM schedule_edges") == [SLOTS]
    assert counted(database, "SELECT COUNT(*) FROM schedules WHERE status = 'ACTIVE'") == [SLOTS]
