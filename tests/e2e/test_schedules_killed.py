"""The real program is killed repeatedly while its slots fire: each edge runs once, in the database and on the device."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from pathlib import Path

import pytest

from support import empty_database
from support.device import cancel_tasks, create_device
from support.service import RUNNING_SERVICES, Service
from support.service_database import ServiceDatabase
from support.stubborn_device import StubbornDevice
from support.thoroughness import usual_or_thorough
from support.transports import DATABASES
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.thorough

SLOTS, KILLS = usual_or_thorough((2_000, 3), (4_000, 6))
"""One run of the program decides a hundred to some hundred slots before the kill; enough are left for the next run."""
HOUR = 3_600
TRIES = 5


async def decided(tables: ServiceDatabase) -> int:
    [(count,)] = await asyncio.to_thread(tables.run, "SELECT COUNT(*) FROM schedule_edges")
    return int(count)


async def die_while_firing(service: Service, tables: ServiceDatabase, chance: random.Random) -> None:
    """Start, wait for the first slots of this run and a moment more; then SIGKILL."""
    before = await decided(tables)
    service.process = service.launch("serve")
    async with asyncio.timeout(TIMEOUT_S):
        while await decided(tables) == before < SLOTS:
            await asyncio.sleep(0.01)
    await asyncio.sleep(chance.uniform(0, 0.12))
    service.kill()


@pytest.mark.parametrize("kind", DATABASES)
async def test_slots_that_fire_while_the_program_is_killed_again_and_again_run_once(tmp_path: Path, kind: str) -> None:
    for number in range(TRIES):
        if await kills_while_slots_fire(tmp_path / str(number), kind) > 1:
            return
    raise AssertionError("the program has decided all slots before the first kill, each time")


async def kills_while_slots_fire(folder: Path, kind: str) -> int:
    """How often it was killed before all slots were decided. They have run once in any case."""
    settings = {"LATCHBOARD_DATABASE_URL": await empty_database.empty_postgres()} if kind == "postgres" else {}
    service, chance = Service(folder, **settings), random.Random(5)
    with service:
        tables = ServiceDatabase(service)
        async with service.api() as owner, contextlib.AsyncExitStack() as stack:
            pumps = [StubbornDevice(await create_device(owner, f"Pump {number}"), service) for number in range(4)]
            due_ts = int(time.time()) + 10
            for pump in pumps:
                slot = {"slot": 0, "onTs": due_ts, "offTs": due_ts + HOUR}
                await owner.post(f"{pump.device.path}/schedules", slot, expect=201)
            await asyncio.to_thread(tables.copy_slots, pumps[0].device.device_id, SLOTS - len(pumps))
            lives = [asyncio.create_task(pump.live()) for pump in pumps]
            stack.push_async_callback(cancel_tasks, *lives)
            service.kill()
            await asyncio.sleep(max(0.0, due_ts - time.time()))
            kills = 0
            while kills < KILLS and await decided(tables) < SLOTS:
                await die_while_firing(service, tables, chance)
                kills += 1
            service.start()
            async with asyncio.timeout(TIMEOUT_S):
                while await decided(tables) < SLOTS:
                    await asyncio.sleep(0.05)
            for pump in pumps:
                path = f"{pump.device.path}/executions"
                await owner.wait_until(path, lambda page: [one["status"] for one in page["data"]] == ["DONE"])
                [only] = (await owner.get(path))["data"]
                assert list(pump.received) == [only["executionId"]]
                assert pump.ran == ["ON"]
                [held] = await owner.get(f"{pump.device.path}/schedules")
                assert (held["status"], held["lastOutcome"] in ("FIRED", "FIRED_LATE")) == ("ACTIVE", True)
        assert service in RUNNING_SERVICES
        await asyncio.to_thread(check_each_ran_once, tables)
    assert service.error_lines() == []
    return kills


def check_each_ran_once(tables: ServiceDatabase) -> None:
    once = "SELECT COUNT(*), COUNT(DISTINCT device_id) FROM {} WHERE {}"
    assert tables.run(once.format("executions", "source = 'schedule'")) == [(SLOTS, SLOTS)]
    assert tables.run(once.format("events", "kind = 'schedule_fired'")) == [(SLOTS, SLOTS)]
    assert tables.run(once.format("schedules", "status = 'ACTIVE' AND next_edge = 'off'")) == [(SLOTS, SLOTS)]
    assert tables.run("SELECT COUNT(*) FROM schedule_edges WHERE edge = 'on'") == [(SLOTS,)]
    assert tables.run("SELECT COUNT(*) FROM events WHERE kind = 'schedule_skipped'") == [(0,)]
