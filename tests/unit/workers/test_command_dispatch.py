"""The loop that dispatches commands: woken by an event, never by polling, and alive after a failure."""

from __future__ import annotations

from typing import Any

import pytest

from app.workers.command_dispatch import CommandDispatchWorker
from app.workers.due import MAX_SLEEP_S, WakeEvent
from domain.commands import dispatch
from domain.commands.dispatch import CommandCrashRecovery
from domain.commands.model import ExecutionStatus
from domain.kernel.errors import Unavailable
from domain.kernel.life import LifeCause
from support.device_world import DeviceWorld
from support.waiting import eventually, loop_turns, running


@pytest.fixture
async def world() -> DeviceWorld:
    return await DeviceWorld().populate()


async def test_a_queued_command_is_sent_when_the_wake_event_is_set(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    wake = WakeEvent()
    recovery = CommandCrashRecovery(uow=world.uow, clock=world.clock)
    async with running(CommandDispatchWorker(dispatch=world.dispatch, recovery=recovery, wake_event=wake)):
        await loop_turns()
        await world.commands.submit(world.session(), device.device_id, "ON")
        wake.set()
        await eventually(lambda: len(world.link.sent) == 1)


async def test_the_dispatcher_goes_on_after_the_link_failed(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    wake = WakeEvent()
    loop = CommandDispatchWorker(
        dispatch=world.dispatch, recovery=CommandCrashRecovery(uow=world.uow, clock=world.clock), wake_event=wake
    )
    world.link.broken = Unavailable("the broker is away")
    await world.commands.submit(world.session(), device.device_id, "ON")
    async with running(loop):
        await eventually(lambda: loop.failures > 0)
        world.link.broken = None
        await eventually(lambda: len(world.link.sent) == 1)


async def test_while_a_life_is_not_settled_nothing_expires_and_the_loop_goes_to_sleep(world: DeviceWorld) -> None:
    device = await world.device()
    await world.commands.submit(world.session(), device.device_id, "ON", ttl_ms=1_000)
    loop = CommandDispatchWorker(dispatch=world.dispatch, recovery=None, wake_event=WakeEvent())
    await loop.run_once()
    world.clock.forward(1_000)
    world.dispatch.life.pending, world.dispatch.life.is_stale = LifeCause.FAILOVER, True
    assert await loop.run_once() == MAX_SLEEP_S
    world.dispatch.life.pending = None
    assert await loop.run_once() == MAX_SLEEP_S
    world.dispatch.life.is_stale = False
    world.dispatch.begin_life()
    await loop.run_once()
    assert (await world.control.list_executions(world.session(), device.device_id, limit=1))[0].status is ExecutionStatus.EXPIRED


async def test_a_life_that_a_transaction_finds_ends_nothing_in_it(world: DeviceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    device = await world.device()
    await world.commands.submit(world.session(), device.device_id, "ON", ttl_ms=1_000)
    world.clock.forward(1_000)
    write = world.uow.write

    def write_to_another(*arguments: Any, **options: Any) -> Any:
        world.dispatch.life.pending = LifeCause.FAILOVER
        return write(*arguments, **options)

    monkeypatch.setattr(world.uow, "write", write_to_another)
    assert not await world.dispatch.expire_batch()
    assert (await world.control.list_executions(world.session(), device.device_id, limit=1))[0].status is ExecutionStatus.QUEUED


async def test_overdue_commands_end_and_a_device_that_listens_gets_its_own(world: DeviceWorld) -> None:
    device, late = await world.device(), await world.device()
    await world.commands.submit(world.session(), late.device_id, "ON", ttl_ms=1_000)
    world.clock.forward(1_000)
    await world.commands.submit(world.session(), device.device_id, "ON")
    wake = WakeEvent()
    loop = CommandDispatchWorker(
        dispatch=world.dispatch, recovery=CommandCrashRecovery(uow=world.uow, clock=world.clock), wake_event=wake
    )

    async def expired() -> bool:
        page = await world.control.list_executions(world.session(), late.device_id, limit=1)
        return page[0].status is ExecutionStatus.EXPIRED

    async with running(loop):
        await eventually(expired)
        world.link.listening.add(device.device_id)
        loop.on_devices_ready([(device.device_no, world.clock.now_ms() + 1, 0)])
        wake.set()
        await eventually(lambda: len(world.link.sent) == 1)


async def test_what_is_queued_does_not_wait_for_all_that_has_expired(world: DeviceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """An account lets commands of hundreds of devices expire; another one switches."""
    device, loud = await world.device(online=True), await world.device()
    monkeypatch.setattr(dispatch, "MAX_EXPIRED_PER_ROUND", 2)
    for _ in range(5):
        await world.commands.submit(world.session(), loud.device_id, "ON", ttl_ms=1_000)
    loop = CommandDispatchWorker(dispatch=world.dispatch, recovery=None, wake_event=WakeEvent())
    await loop.run_once()
    world.clock.forward(1_000)
    sent_before_each: list[int] = []
    expire = world.dispatch.expire_batch

    async def expire_beside_a_switch() -> bool:
        sent_before_each.append(len(world.link.sent))
        more = await expire()
        if len(sent_before_each) == 1:
            await world.commands.submit(world.session(), device.device_id, "ON")
        return more

    monkeypatch.setattr(world.dispatch, "expire_batch", expire_beside_a_switch)
    await loop.run_once()
    assert sent_before_each == [0, 1, 1]
