"""The worker of due rules: what the database refuses, or cannot store now, stays due and is evaluated again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.workers import rule_timers
from app.workers.due import WakeEvent
from app.workers.rule_timers import RuleTimerWorker
from domain.devices.model import Device
from domain.ingest.pipeline import EngineClock
from domain.ingest.results import IngestResult
from domain.kernel.errors import Unavailable
from domain.rules.model import Comparator, RuleCondition
from support.device import cancel_tasks
from support.telemetry_world import TelemetryWorld
from support.waiting import TIMEOUT_S

FOR_SECONDS = 60


@pytest.fixture
async def world() -> TelemetryWorld:
    return await TelemetryWorld().populate()


class RefusingIngest:
    """Stores as the world does, but raises `errors` first for results of `device_no`."""

    def __init__(self, world: TelemetryWorld, device_no: int, *errors: Exception) -> None:
        self.world, self.device_no, self.errors = world, device_no, list(errors)

    async def store_timers(self, tx: Any, result: IngestResult) -> None:
        await self.world.ingest.store_timers(tx, result)
        if self.errors and self.device_no in result.device_nos:
            raise self.errors.pop(0)


@asynccontextmanager
async def running(
    world: TelemetryWorld,
    ingest: Any,
    monkeypatch: pytest.MonkeyPatch,
    evaluated_until_ms: Callable[[int], int] = lambda now_ms: now_ms,
) -> Any:
    monkeypatch.setattr(rule_timers, "RETRY_PAUSE_S", 0.0)
    worker = RuleTimerWorker(
        engine=world.engine,
        ingest=ingest,
        uow=world.uow,
        engine_clock=EngineClock(engine=world.engine, clock=world.clock, on_step=lambda step_ms: None),
        engine_commit_lock=asyncio.Lock(),
        absence=world.absence,
        evaluated_until_ms=evaluated_until_ms,
        wake_event=WakeEvent(),
    )
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        await cancel_tasks(task)


async def due_devices(world: TelemetryWorld) -> list[Device]:
    """Two devices, each with a rule that becomes due now."""
    devices = [await world.device(), await world.device()]
    for device in devices:
        await world.report(device, temperature=20)
        await world.rule(device, for_seconds=FOR_SECONDS)
        await world.report(device, temperature=31)
    world.clock.forward(FOR_SECONDS * 1_000)
    return devices


async def until_commands(world: TelemetryWorld, device: Device, commands: list[str]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while await world.commands_of(device) != commands:
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    "errors",
    [
        [Unavailable("away"), Unavailable("away")],
        [ValueError("refused")],
        [ValueError("refused together"), ValueError("refused alone"), ValueError("refused again")],
    ],
)
async def test_a_due_rule_fires_once_when_the_database_takes_it(
    world: TelemetryWorld, errors: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, other = await due_devices(world)
    ingest = RefusingIngest(world, refused.device_no, *errors)
    async with running(world, ingest, monkeypatch):
        await until_commands(world, refused, ["OFF"])
        await until_commands(world, other, ["OFF"])
        assert not ingest.errors
        assert world.engine.next_timer_ms() is None
    assert [event.device_id for event in world.events_of_kind("rule_matched")].count(refused.device_id) == 1


async def test_a_refused_rule_whose_condition_ended_meanwhile_fires_at_its_time(
    world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, other = await due_devices(world)
    ingest = RefusingIngest(world, refused.device_no, *[ValueError("refused")] * 10_000)
    async with running(world, ingest, monkeypatch) as worker:
        await until_commands(world, other, ["OFF"])
        async with asyncio.timeout(TIMEOUT_S):
            while not worker.refused:
                await asyncio.sleep(0)
    await world.report(refused, temperature=20)
    assert world.engine.next_timer_ms() is None
    assert await world.commands_of(refused) == ["OFF"]


async def test_a_timer_does_not_overtake_a_message_that_waits(world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database was away: a reading that breaks the silence arrived in time, and is read late."""
    device = await world.device()
    await world.report(device, temperature=20)
    await world.rule(device, conditions=(RuleCondition("temperature", Comparator.SILENT, FOR_SECONDS),))
    arrived_ms = world.clock.now_ms() + 1_000
    world.clock.forward(2 * FOR_SECONDS * 1_000)
    looks = list[int]()

    def evaluated_until_ms(now_ms: int) -> int:
        looks.append(now_ms)
        return arrived_ms if waits else now_ms

    waits = True
    monkeypatch.setattr(rule_timers, "BACKLOG_LOOK_S", 0.0)
    async with running(world, world.ingest, monkeypatch, evaluated_until_ms):
        async with asyncio.timeout(TIMEOUT_S):
            while len(looks) < 3:
                await asyncio.sleep(0)
        assert await world.commands_of(device) == []
        waits = False
        await until_commands(world, device, ["OFF"])


async def test_the_refused_rules_of_a_deleted_device_are_forgotten(
    world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, other = await due_devices(world)
    async with world.uow.write() as tx:
        await tx.devices.delete(refused.device_id, world.clock.now_ms())
    ingest = RefusingIngest(world, refused.device_no, ValueError("no such device"), ValueError("no such device"))
    async with running(world, ingest, monkeypatch):
        await until_commands(world, other, ["OFF"])
        async with asyncio.timeout(TIMEOUT_S):
            while world.engine.next_timer_ms() is not None:
                await asyncio.sleep(0)
    assert await world.commands_of(refused) == []
