"""The schedule worker sleeps until a slot is due and survives failures; failed plan publications are retried."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters.mqtt.codec import ProfileDispatchingDeviceCodec
from app.workers.due import WakeEvent
from app.workers.schedules import DevicePlanWorker, InProcessDevicePlanQueue, ScheduleWorker
from domain.kernel.errors import Unavailable
from domain.schedules.device_plan import DevicePlanSyncService
from support.schedule_world import MINUTE, NOW, ScheduleWorld
from support.waiting import eventually, loop_turns, running


@pytest.fixture
async def world() -> ScheduleWorld:
    return await ScheduleWorld().populate()


def ticker(world: ScheduleWorld, wake: WakeEvent) -> ScheduleWorker:
    return ScheduleWorker(firing=world.firing, left_edges=world.left_edges, clock=world.clock, wake_event=wake)


async def test_due_slots_run_at_startup_and_saving_wakes_the_worker(world: ScheduleWorld) -> None:
    device, wake = await world.device(online=True), WakeEvent()
    await world.put(device, NOW + 60, NOW + 90)
    world.clock.forward(60_000)
    async with running(ticker(world, wake)):
        await eventually(lambda: world.fired() == [("on", 0)])
        world.clock.forward(30_000)
        wake.set()
        await eventually(lambda: len(world.fired()) == 2)


async def test_the_worker_sleeps_until_the_next_edge(world: ScheduleWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    device, wake = await world.device(online=True), WakeEvent()
    await world.put(device, NOW + 7, NOW + 3600)
    slept: list[float | None] = []

    async def wait(timeout_s: float | None) -> bool:
        slept.append(timeout_s)
        world.clock.forward(round((timeout_s or 0) * 1000))
        await asyncio.sleep(0)
        return False

    monkeypatch.setattr(wake, "wait", wait)
    loop = ticker(world, wake)
    async with running(loop):
        await eventually(lambda: len(slept) > 2)
    assert slept[:2] == [7.0, 30.0]
    assert (loop.fired, loop.failures, loop.lateness_ms) == (1, 0, 0)


async def test_a_failure_is_counted_and_retried(world: ScheduleWorld) -> None:
    device, wake = await world.device(online=True), WakeEvent()
    await world.put(device, NOW + 60, NOW + 90)
    world.clock.forward(60_000)
    run, calls = world.commands.run_unattended, []

    class Failing:
        async def run_unattended(self, *args: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                raise Unavailable("not now")
            return await run(*args)

    world.firing = world.make_firing(commands=Failing())
    loop = ticker(world, wake)
    async with running(loop):
        await eventually(lambda: world.fired() == [("on", 0)])
    assert (loop.failures, len(calls)) == (1, 2)


async def test_a_slot_with_an_internal_error_is_quarantined(world: ScheduleWorld) -> None:
    bad, good = await world.device(online=True), await world.device(online=True)
    await world.put(bad, NOW + 60, NOW + 90)
    await world.put(good, NOW + 60, NOW + 90)
    world.clock.forward(60_000)
    run = world.commands.run_unattended

    class Faulty:
        async def run_unattended(self, tx: Any, automation_commands: Any, now_ms: int) -> Any:
            if bad.device_id in [command.request.device.device_id for command in automation_commands]:
                raise KeyError("ours")
            return await run(tx, automation_commands, now_ms)

    world.firing = world.make_firing(commands=Faulty())
    loop = ticker(world, WakeEvent())
    async with running(loop):
        await eventually(lambda: world.fired() == [("on", 0)])
    assert (loop.quarantined, world.skipped()) == (1, [("on", "SKIPPED_COMMAND")])


async def test_a_clock_set_forward_does_not_make_edges_missed(world: ScheduleWorld) -> None:
    device, wake = await world.device(online=True), WakeEvent()
    await world.put(device, NOW + 60, NOW + 24 * 3600, misfire_grace_s=60)
    loop = ticker(world, wake)
    async with running(loop):
        await loop_turns()
        world.clock.forward(60 * MINUTE * 1000)
        wake.set()
        await eventually(lambda: len(world.fired()) == 1)
    assert world.skipped() == []


async def test_plans_are_published_at_the_start_and_after_each_change(world: ScheduleWorld) -> None:
    device = await world.device()
    world.link.listening.add(device.device_id)
    outbox = InProcessDevicePlanQueue(WakeEvent())
    plans = DevicePlanSyncService(
        uow=world.uow, clock=world.clock, link=world.link, codec=ProfileDispatchingDeviceCodec(), publisher=outbox.enqueue
    )
    await world.put(device, NOW + 60, NOW + 90)
    loop = DevicePlanWorker(plans=plans, queue=outbox)
    async with running(loop):
        await eventually(lambda: len(world.link.sent) == 1)
        await world.put(device, NOW + 70, NOW + 90)
        outbox.enqueue(device.device_id)
        await eventually(lambda: len(world.link.sent) == 2)
    assert [reported.payload.decode()[:8] for reported in world.link.sent] == ['{"rev":1', '{"rev":2']


async def test_a_plan_that_could_not_be_sent_is_sent_later(world: ScheduleWorld) -> None:
    device = await world.device()
    world.link.listening.add(device.device_id)
    await world.put(device, NOW + 60, NOW + 90)
    outbox = InProcessDevicePlanQueue(WakeEvent())
    loop = DevicePlanWorker(plans=world.plans, queue=outbox)
    world.link.broken = Unavailable("the broker is away")
    async with running(loop):
        await eventually(lambda: loop.failures > 0)
        world.link.broken = None
        await eventually(lambda: len(world.link.sent) > 0)


async def test_a_slot_in_a_long_queue_is_not_missed(world: ScheduleWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    devices, wake = [await world.device(online=True) for _ in range(20)], WakeEvent()
    for device in devices:
        await world.put(device, NOW + 60, NOW + 24 * 3600, misfire_grace_s=60)
    fire_due = world.firing.fire_due

    async def slow(now_ms: int, **named: Any) -> int:
        world.clock.forward(2 * MINUTE * 1000)
        return await fire_due(now_ms, **named)

    monkeypatch.setattr(world.firing, "fire_due", slow)
    async with running(ticker(world, wake)):
        await loop_turns()
        world.clock.forward(60_000)
        wake.set()
        await eventually(lambda: len(world.fired()) == 20)
    assert world.skipped() == []


async def test_a_slot_due_long_before_startup_is_missed(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    await world.put(device, NOW + 60, NOW + 24 * 3600, misfire_grace_s=60)
    world.clock.forward(10 * MINUTE * 1000)
    async with running(ticker(world, WakeEvent())):
        await eventually(lambda: world.skipped() == [("on", "MISSED")])
