"""The in-process dispatch queue saves a database scan, keeps the order, and never sends a command twice."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from domain.commands import dispatch_queue
from domain.commands.model import AutomationCommand, CommandRequest, Execution, ExecutionStatus, TriggeredBy
from domain.devices.messages import CommandResultReport
from domain.kernel.caller import SystemCaller
from domain.kernel.errors import Conflict, PermissionDenied, ValidationFailed
from support.device_world import ACCOUNT, DeviceWorld
from support.memory_storage.commands import MemoryExecutionRepository


def sent(world: DeviceWorld) -> list[str]:
    return [json.loads(reported.payload)["cmd"] for reported in world.link.sent]


def ids(world: DeviceWorld) -> list[str]:
    return [json.loads(reported.payload)["id"] for reported in world.link.sent]


async def test_a_command_of_this_process_is_sent_without_a_database_scan(
    world: DeviceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await world.device(online=True)
    await world.dispatch_all()
    await world.commands.submit(world.session(), device.device_id, "ON")

    def no_reading() -> Any:
        raise AssertionError("the offer has all that is needed")

    monkeypatch.setattr(world.uow, "read", no_reading)
    await world.dispatch_all()
    assert sent(world) == ["ON"]


async def test_a_command_found_by_a_scan_is_not_sent_again_from_the_queue(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    for _ in range(3):
        await world.commands.submit(world.session(), device.device_id, "TOGGLE")
    world.dispatch.rescan()
    await world.dispatch_all()
    assert len(ids(world)) == len(set(ids(world))) == 3


async def test_a_queue_entry_that_arrives_after_the_scan_sends_nothing(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    await world.commands.submit(world.session(), device.device_id, "ON")
    late = world.offers.pop_batch(9)
    world.dispatch.rescan()
    await world.dispatch_all()
    world.offers.put(late)
    await world.dispatch_all()
    assert sent(world) == ["ON"]


@pytest.mark.parametrize(
    "has_begun_to_scan", [True, False], ids=["during a scan", "while a subscribed device's commands are read"]
)
async def test_a_command_of_another_instance_that_comes_during_a_read_is_sent(
    world: DeviceWorld, monkeypatch: pytest.MonkeyPatch, has_begun_to_scan: bool
) -> None:
    device = await world.device(online=True)
    await world.dispatch_all()
    read = world.uow.read

    @asynccontextmanager
    async def read_too_early(**more: Any) -> AsyncIterator[Any]:
        async with read(**more) as tx:
            yield tx
        monkeypatch.undo()
        await world.commands.submit(world.session(), device.device_id, "ON")
        world.offers.pop_batch(9)  # it is in the database only
        world.dispatch.rescan()

    monkeypatch.setattr(world.uow, "read", read_too_early)
    if has_begun_to_scan:
        world.dispatch.rescan()
    else:
        world.dispatch.on_device_ready(device.device_no, world.clock.now_ms())
    await world.dispatch_all()
    assert sent(world) == ["ON"]


async def test_a_deadline_of_another_instance_that_comes_during_a_read_is_kept(
    world: DeviceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await world.device()
    await world.commands.submit(world.session(), device.device_id, "OFF", ttl_ms=60_000)
    await world.dispatch_all()
    world.dispatch.rescan()
    next_expiry_ms = MemoryExecutionRepository.next_expiry_ms

    async def read_too_early(executions: MemoryExecutionRepository) -> int | None:
        found = await next_expiry_ms(executions)
        monkeypatch.undo()
        await world.commands.submit(world.session(), device.device_id, "ON", ttl_ms=5_000)
        world.offers.pop_batch(9)  # it is in the database only
        world.dispatch.rescan()
        return found

    monkeypatch.setattr(MemoryExecutionRepository, "next_expiry_ms", read_too_early)
    assert await world.dispatch.next_expiry_ms() == world.clock.now_ms() + 60_000
    assert await world.dispatch.next_expiry_ms() == world.clock.now_ms() + 5_000


async def test_a_queue_entry_does_not_overtake_commands_on_later_scan_pages(world: DeviceWorld) -> None:
    device, others = await world.device(), [await world.device(online=True) for _ in range(3)]
    await world.commands.submit(world.session(), device.device_id, "ON")
    for other in others:
        for _ in range(90):
            await world.commands.submit(world.session(), other.device_id, "TOGGLE")
    await world.commands.submit(world.session(), device.device_id, "STATUS")
    world.dispatch = world.make_dispatch()  # after a restart, with offers of its own
    await world.commands.submit(world.session(), device.device_id, "OFF")
    world.link.listening.add(device.device_id)
    await world.dispatch_all()
    mine = [json.loads(reported.payload)["cmd"] for reported in world.link.sent if reported.device_id == device.device_id]
    assert mine == ["ON", "STATUS", "OFF"]


async def test_a_long_queue_of_other_devices_does_not_delay_a_new_command(world: DeviceWorld) -> None:
    here, others = await world.device(online=True), [await world.device() for _ in range(7)]
    for other in others:
        for _ in range(90):
            await world.commands.submit(world.session(), other.device_id, "TOGGLE")
    await world.dispatch_all()
    world.dispatch.rescan()
    await world.commands.submit(world.session(), here.device_id, "ON")
    assert await world.dispatch.send_queued(), "the queue is longer than one round looks at"
    assert sent(world) == ["ON"]
    await world.dispatch_all()
    assert sent(world) == ["ON"]


async def test_commands_dropped_by_an_overflow_are_found_in_the_database(
    world: DeviceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_queue, "MAX_QUEUED", 2)
    device = await world.device(online=True)
    await world.dispatch_all()
    for cmd in ("ON", "OFF", "TOGGLE", "STATUS"):
        await world.commands.submit(world.session(), device.device_id, cmd)
    await world.dispatch_all()
    assert sent(world) == ["ON", "OFF", "TOGGLE", "STATUS"]


async def test_the_next_deadline_is_read_once_and_updated_by_each_new_command(world: DeviceWorld) -> None:
    device = await world.device()
    await world.commands.submit(world.session(), device.device_id, "ON", ttl_ms=60_000)
    await world.dispatch_all()
    first_ms = await world.dispatch.next_expiry_ms()
    assert first_ms == world.clock.now_ms() + 60_000
    await world.commands.submit(world.session(), device.device_id, "OFF", ttl_ms=5_000)
    await world.dispatch_all()
    assert await world.dispatch.next_expiry_ms() == world.clock.now_ms() + 5_000
    world.clock.forward(5_000)
    assert not await world.dispatch.expire_batch()
    assert await world.dispatch.next_expiry_ms() == first_ms


async def test_each_automation_command_gets_its_own_result(world: DeviceWorld) -> None:
    good, off, full = [await world.device(online=True) for _ in range(3)]
    await world.devices.toggle_enabled(world.session(), off.device_id)
    for _ in range(100):
        await world.commands.submit(world.session(), full.device_id, "STATUS")
    caller = SystemCaller(ACCOUNT, "rule", "rul_1", on_behalf_of=world.session().membership_id)
    wanted = [
        (good, "ON", None),
        (off, "ON", None),
        (good, "FLY", None),
        (full, "ON", None),
        (good, "OFF", 1),
        (good, "OFF", None),
    ]
    automation_commands = [
        AutomationCommand(caller, CommandRequest(await world.stored(device.device_id), cmd, params, 60_000), TriggeredBy.RULE)
        for device, cmd, params in wanted
    ]
    async with world.uow.write() as tx:
        outcomes = await world.commands.run_unattended(tx, automation_commands, world.clock.now_ms())
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Execution, PermissionDenied, ValidationFailed, Conflict, ValidationFailed, Execution]
    async with world.uow.read() as tx:
        page = await tx.executions.page(good.device_id, limit=9)
    assert [execution.cmd for execution in page] == ["OFF", "ON"]


async def test_results_of_one_batch_see_those_before_them(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    on = (await world.commands.submit(world.session(), device.device_id, "ON")).execution
    off = (await world.commands.submit(world.session(), device.device_id, "OFF")).execution
    assert on is not None
    assert off is not None
    await world.report(
        device.device_id,
        CommandResultReport(on.execution_id, "ack"),
        CommandResultReport(on.execution_id, "done", relay=True),
        CommandResultReport(off.execution_id, "done", relay=False),
        CommandResultReport(off.execution_id, "done", relay=False),
    )
    assert [event.data["relay"] for event in world.events_of_kind("relay_changed")] == ["ON", "OFF"]
    assert [event.data["cmd"] for event in world.events_of_kind("command_result")] == ["ON", "OFF"]
    assert world.reports.ignored == {"duplicate": 1}
    async with world.uow.read() as tx:
        assert {one.status for one in await tx.executions.page(device.device_id, limit=9)} == {ExecutionStatus.DONE}
