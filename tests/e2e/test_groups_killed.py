"""SIGKILL in the middle of a command to a group of 30 devices: every device runs it at most once, and its end is known. Some devices
share a transaction; the oldest ones come first."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from domain.commands.model import ExecutionStatus
from domain.kernel.unit_of_work import OBJECTS_PER_TRANSACTION
from support import empty_database
from support.device import Device, cancel_tasks
from support.service import ApiClient, Service
from support.stubborn_device import StubbornDevice
from support.transports import ALL_DATABASES
from support.waiting import TIMEOUT_S

DEVICES, KILLS = 30, 4


async def register(owner: ApiClient) -> list[Device]:
    rows = [{"name": f"Pump {number}", "boardType": "ESP32", "appType": "PUMP"} for number in range(DEVICES)]
    made = await owner.post("/devices/register/bulk", {"devices": rows, "credentials": "NEW"})
    return [Device(each["deviceId"], each["credentials"]) for each in made["devices"]]


async def kill_while_sending(
    service: Service, owner: ApiClient, pumps: list[StubbornDevice], path: str, chance: random.Random
) -> Any:
    """Send, kill when the first device has the command or a moment before, start, and send again with the same key."""
    key = {"Idempotency-Key": f"key {chance.random()}"}
    before = sum(len(pump.ran) for pump in pumps)

    async def send() -> None:
        with contextlib.suppress(httpx.TransportError):
            await owner.send("POST", path, {"cmd": "ON"}, headers=key)

    async def until_one_runs() -> None:
        while sum(len(pump.ran) for pump in pumps) == before:
            await asyncio.sleep(0.001)

    sending = asyncio.create_task(send())
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(until_one_runs(), chance.choice([0.01, 0.03, TIMEOUT_S]))
    await service.kill_and_restart()
    await sending
    return await owner.send("POST", path, {"cmd": "ON"}, headers=key)


async def ended(owner: ApiClient, pump: StubbornDevice) -> list[Any]:
    """The executions of the device, newest first, when each has ended."""
    page = await owner.wait_until(
        f"{pump.device.path}/executions",
        lambda found: all(ExecutionStatus(one["status"]).is_final for one in found["data"]),
        within_s=4 * TIMEOUT_S,
    )
    found: list[Any] = page["data"]
    return found


@pytest.mark.parametrize("kind", ALL_DATABASES)
async def test_a_command_to_30_devices_runs_once_on_each_though_the_program_is_killed(tmp_path: Path, kind: str) -> None:
    settings = {"LATCHBOARD_DATABASE_URL": await empty_database.empty_postgres()} if kind == "postgres" else {}
    chance = random.Random(5)
    async with contextlib.AsyncExitStack() as stack:
        service = stack.enter_context(Service(tmp_path, **settings))
        owner = await stack.enter_async_context(service.api())
        pumps = [StubbornDevice(device, service) for device in await register(owner)]
        body = {"name": "Pumps", "deviceIds": [pump.device.device_id for pump in pumps]}
        path = f"/groups/{(await owner.post('/groups', body, expect=201))['groupId']}/command"
        stack.push_async_callback(cancel_tasks, *[asyncio.create_task(pump.live()) for pump in pumps])
        await owner.wait_until("/devices?state=ONLINE&limit=100", lambda found: len(found) == DEVICES)

        before, finished = [0] * DEVICES, 0
        for _ in range(KILLS):
            answer = await kill_while_sending(service, owner, pumps, path, chance)
            executions = [await ended(owner, pump) for pump in pumps]
            for pump, of_pump in zip(pumps, executions, strict=True):
                assert sorted(pump.received) == sorted(one["executionId"] for one in of_pump if one["status"] == "DONE")
            new = [len(of_pump) - had for of_pump, had in zip(executions, before, strict=True)]
            before = [len(of_pump) for of_pump in executions]
            assert new in ([1] * DEVICES, [1] * OBJECTS_PER_TRANSACTION + [0] * (DEVICES - OBJECTS_PER_TRANSACTION)), (
                "the second request with the key sent nothing twice"
            )
            finished += all(new)
            if answer.status_code == 200:
                check_report(answer.json(), [of_pump[0]["executionId"] for of_pump in executions])
            else:
                assert answer.json()["error"] == "IDEMPOTENCY_ANSWER_LOST", answer.text
        log = (await owner.get("/events?type=command_sent_to_group&limit=100"))["data"]
        whole = f"Command ON for group Pumps: {DEVICES} queued, 0 wait, 0 refused"
        assert [entry["description"] for entry in log] == [whole] * finished
    assert service.error_lines() == []


def check_report(report: Any, execution_ids: list[str]) -> None:
    assert (report["queued"], report["refused"]) == (DEVICES, 0)
    assert sorted(each["executionId"] for each in report["devices"]) == sorted(execution_ids)
