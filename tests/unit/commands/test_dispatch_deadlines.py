"""A command's time lasts by the monotonic clock, however the wall clock is set."""

from __future__ import annotations

import pytest

from domain.commands.model import ExecutionStatus
from domain.devices.absence import GRACE_MS
from domain.kernel.ids import ExecutionId
from support.device_world import DeviceWorld


async def submit(world: DeviceWorld, ttl_ms: int) -> ExecutionId:
    device = await world.device()
    await world.dispatch_all()
    submitted = await world.commands.submit(world.session(), device.device_id, "ON", ttl_ms=ttl_ms)
    assert submitted.execution is not None
    return submitted.execution.execution_id


async def status_of(world: DeviceWorld, execution_id: ExecutionId) -> ExecutionStatus:
    async with world.uow.read() as tx:
        execution = await tx.executions.find(execution_id)
    assert execution is not None
    return execution.status


@pytest.mark.parametrize("minutes", [-60, 60])
async def test_a_command_expires_neither_later_nor_earlier_when_the_clock_is_set(world: DeviceWorld, minutes: int) -> None:
    execution_id = await submit(world, 30_000)
    world.clock.forward(10_000)
    world.clock.step(minutes=minutes)
    world.clock.forward(19_999)
    await world.dispatch.expire_batch()
    assert await status_of(world, execution_id) is ExecutionStatus.QUEUED
    world.clock.forward(1)
    await world.dispatch.expire_batch()
    assert await status_of(world, execution_id) is ExecutionStatus.EXPIRED


async def test_a_command_that_waits_is_still_sent_after_the_clock_was_set_ahead(world: DeviceWorld) -> None:
    device = await world.device()
    await world.dispatch_all()
    await world.commands.submit(world.session(), device.device_id, "ON", ttl_ms=30_000)
    world.clock.step(minutes=60)
    await world.connect(device.device_id)
    await world.dispatch_all()
    [sent] = [message for message in world.link.sent if message.topic == "cmd"]
    assert sent.expiry_s == 30


async def test_after_a_restart_with_a_clock_that_was_ahead_before_a_command_has_its_whole_time_at_most(
    world: DeviceWorld,
) -> None:
    world.clock.step(minutes=60)
    execution_id = await submit(world, 30_000)
    world.clock.step(minutes=-60)
    world.dispatch = world.make_dispatch()
    await world.dispatch_all()
    world.clock.forward(30_000)
    await world.dispatch.expire_batch()
    assert await status_of(world, execution_id) is ExecutionStatus.EXPIRED


async def test_a_step_is_followed_later_when_the_database_is_away(world: DeviceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    execution_id = await submit(world, 30_000)
    world.clock.step(minutes=60)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(world.uow, "write", _refuse)
        await world.dispatch.expire_batch()
    await world.dispatch.expire_batch()
    assert await status_of(world, execution_id) is ExecutionStatus.QUEUED


async def test_what_was_sent_does_not_time_out_while_its_device_cannot_be_heard(world: DeviceWorld) -> None:
    device = await world.device()
    await world.connect(device.device_id)
    await world.dispatch_all()
    submitted = await world.commands.submit(world.session(), device.device_id, "ON", ttl_ms=5_000)
    assert submitted.execution is not None
    execution_id = submitted.execution.execution_id
    await world.dispatch_all()
    assert await status_of(world, execution_id) is ExecutionStatus.SENT
    reachable = False
    world.absence.hears = lambda: reachable
    await world.absence.start()
    world.absence.follow_link()
    world.clock.forward(300_000)
    await world.dispatch.expire_batch()
    assert await status_of(world, execution_id) is ExecutionStatus.SENT
    reachable = True
    world.absence.follow_link()
    world.clock.forward(GRACE_MS - 1)
    await world.dispatch.expire_batch()
    assert await status_of(world, execution_id) is ExecutionStatus.SENT
    world.clock.forward(1)
    await world.dispatch.expire_batch()
    assert await status_of(world, execution_id) is ExecutionStatus.TIMED_OUT


def _refuse(caller: object = None) -> None:
    raise RuntimeError
