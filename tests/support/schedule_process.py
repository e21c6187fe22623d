"""The schedule worker in its own process, for kill tests: prints `batch` after each committed batch and `done` at the end.

python -m support.schedule_process populate|fire DATABASE-URL [BATCHES]

After so many batches it waits to be killed, so that a busy machine, on which the kill comes late, leaves work for the next one.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

from adapters.randomness import RandomIdAndSecretGenerator
from adapters.storage.sql.database import SqlDatabase
from domain.events.dispatcher import EventDispatcher
from domain.events.model import Event
from support.schedule_world import DAY, NOW, ScheduleWorld
from support.waiting import TIMEOUT_S

SLOTS = 120


class NoFeed:
    def publish(self, event: Event) -> None: ...


class SqlScheduleWorld(ScheduleWorld):
    """A `ScheduleWorld` whose services use a SQL database."""

    def __init__(self, database: SqlDatabase) -> None:
        uow = database.unit_of_work(EventDispatcher(ids=RandomIdAndSecretGenerator(), observers=(), feed=NoFeed()))
        super().__init__()
        self.uow = uow  # type: ignore[assignment]
        for service in (self.schedules, self.plans, self.firing, self.devices, self.credentials, self.presence):
            service.uow = uow  # type: ignore[attr-defined]
        self.commands.uow = uow  # type: ignore[assignment]
        self.admission.uow = uow  # type: ignore[assignment]
        self.commands.ids = RandomIdAndSecretGenerator()


async def populate(world: SqlScheduleWorld) -> None:
    await world.populate()
    device = await world.device()
    await world.put(device, NOW + 60, NOW + DAY)
    slot = await world.slot(device)
    async with world.uow.write() as tx:
        for number in range(1, SLOTS):
            other = await tx.devices.add(replace(device, device_id=f"dev_copy{number:016d}", name=f"Copy {number}"))
            await tx.schedules.add(
                replace(slot, schedule_id=f"sched_copy{number:016d}", device_id=other.device_id, device_no=other.device_no)
            )


async def fire(world: SqlScheduleWorld, batches: int) -> None:
    world.clock.ms = (NOW + 60) * 1000
    while await world.firing.next_due_ts() == NOW + 60:
        if not batches:
            await asyncio.sleep(TIMEOUT_S)
        if await world.firing.fire_due(world.clock.now_ms(), limit=3):
            print("batch", flush=True)
            batches -= 1


async def main(what: str, url: str, batches: str = str(SLOTS)) -> None:
    database = SqlDatabase(url, acquire_timeout_s=TIMEOUT_S)
    await database.start()
    try:
        world = SqlScheduleWorld(database)
        await (populate(world) if what == "populate" else fire(world, int(batches)))
        print("done", flush=True)
    finally:
        await database.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
