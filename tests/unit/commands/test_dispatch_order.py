"""A device gets its commands in order despite reconnects, lost messages and late notifications."""

from __future__ import annotations

import json
from typing import Any

import pytest

from domain.commands.model import Execution, ExecutionStatus
from domain.devices.model import Device
from support.device_world import DeviceWorld


async def given(world: DeviceWorld, device: Device, cmd: str) -> Execution:
    submitted = await world.commands.submit(world.session(), device.device_id, cmd)
    assert submitted.execution is not None
    return submitted.execution


def sent(world: DeviceWorld) -> list[str]:
    return [json.loads(reported.payload)["cmd"] for reported in world.link.sent]


def subscribes(world: DeviceWorld, device: Device) -> int:
    """It hears from now on, and the news of that is still on the way."""
    world.clock.forward(5)
    at_ms = world.link.subscribed[device.device_id] = world.clock.now_ms()
    world.link.listening.add(device.device_id)
    world.clock.forward(1)
    return at_ms


async def test_commands_lost_with_a_connection_are_resent_before_new_ones(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    await given(world, device, "ON")
    await world.dispatch_all()
    at_ms = subscribes(world, device)
    await given(world, device, "OFF")
    await world.dispatch_all()
    assert sent(world) == ["ON"]
    world.dispatch.on_device_ready(device.device_no, at_ms)
    await world.dispatch_all()
    assert sent(world) == ["ON", "ON", "OFF"]


async def test_a_device_that_reconnects_twice_waits_for_the_second_notification(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    await given(world, device, "ON")
    await world.dispatch_all()
    first_ms = subscribes(world, device)
    second_ms = subscribes(world, device)
    await given(world, device, "OFF")
    world.dispatch.on_device_ready(device.device_no, first_ms)
    await world.dispatch_all()
    assert sent(world) == ["ON"]
    world.dispatch.on_device_ready(device.device_no, second_ms)
    await world.dispatch_all()
    assert sent(world) == ["ON", "ON", "OFF"]


async def test_dispatch_waits_for_a_later_subscription_to_another_topic_and_then_continues(world: DeviceWorld) -> None:
    device = await world.device()
    await given(world, device, "ON")
    await world.dispatch_all()
    commands_ms, plan_ms = subscribes(world, device), subscribes(world, device)
    world.dispatch.on_device_ready(device.device_no, commands_ms)
    await world.dispatch_all()
    await given(world, device, "OFF")
    await world.dispatch_all()
    assert sent(world) == []
    world.dispatch.on_subscribed(device.device_no, plan_ms)
    await world.dispatch_all()
    assert sent(world) == ["ON", "OFF"]


async def test_a_lost_notification_does_not_block_dispatch_forever(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    subscribes(world, device)
    await given(world, device, "ON")
    for _ in range(2):
        await world.dispatch_all()
        assert sent(world) == []
        world.dispatch.rescan_and_reset()
    await world.dispatch_all()
    assert sent(world) == ["ON"]


@pytest.mark.parametrize("returned", [True, False], ids=["has said that it listens", "is behind and there again"])
async def test_a_command_queued_during_a_scan_is_not_lost(
    world: DeviceWorld, monkeypatch: pytest.MonkeyPatch, returned: bool
) -> None:
    device = await world.device()
    await given(world, device, "ON")
    await world.dispatch_all()
    world.link.listening.add(device.device_id)
    if returned:
        world.dispatch.on_device_ready(device.device_no, world.clock.now_ms() + 1)
    else:
        await given(world, device, "STATUS")
    repository: Any = type((await world.uow.read().__aenter__()).executions)
    open_of, given_meanwhile = repository.list_open_by_device, []

    async def slow(self: Any, device_id: Any) -> Any:
        found = await open_of(self, device_id)
        if not given_meanwhile:
            given_meanwhile.append(await given(world, device, "OFF"))
        return found

    monkeypatch.setattr(repository, "list_open_by_device", slow)
    await world.dispatch_all()
    assert sent(world) == ["ON", "OFF"] if returned else ["ON", "STATUS", "OFF"]
    async with world.uow.read() as tx:
        executions = await tx.executions.page(device.device_id, limit=9)
    assert {one.status for one in executions} == {ExecutionStatus.SENT}
