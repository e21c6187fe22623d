"""Deleting a device with much data while the service is killed repeatedly: at the end no table has a row of it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from domain.telemetry.packing import pack_readings
from support.database_probe import KEPT_AFTER_DELETION, count_rows_of_device, dangling_references, insert_rows, rows
from support.device import Device, create_device
from support.service import ApiClient, Service
from support.thoroughness import usual_or_thorough
from support.transports import DATABASES, database_settings
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.thorough

HOUR_MS = 3_600_000
MESSAGES, HOURS, KILLS = usual_or_thorough((6_000, 600, 2), (30_000, 3_000, 4))
NOTHING = pack_readings([])
HOT = {"metric": "power", "comparator": ">", "value": 1e9}


@pytest.fixture(scope="module", params=DATABASES)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service"), LATCHBOARD_INGEST_LIMIT=0, **database_settings(request.param)) as service:
        yield service


async def one_that_has_everything(service: Service, owner: ApiClient) -> Device:
    """A device with at least one row in each table that can hold one."""
    device = await create_device(owner, "Meter")
    await owner.post("/groups", {"name": f"Group of {device.device_id}", "deviceIds": [device.device_id]}, expect=201)
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{device.path}/grants", {"commands": ["*"], "apiKeyId": key["keyId"]}, expect=201)
    await owner.post("/webhooks", {"keyId": key["keyId"], "url": "http://127.0.0.1:9/"}, expect=201)
    opening = {"name": "OPEN", "label": "Open", "requiresApproval": True}
    await owner.post(f"{device.path}/commands", opening, expect=201)
    later = int(time.time()) + 3_600
    await owner.post(f"{device.path}/schedules", {"slot": 0, "onTs": later, "offTs": later + 60}, expect=201)
    now_ms = int(time.time() * 1000)
    async with device.online(service) as line, service.api(**{"X-Api-Key": key["key"]}) as robot:
        await line.report(power=1.5, mode="eco")
        await line.publish("telemetry", {"ts": now_ms - 5 * HOUR_MS, "m": {"power": 2}})
        rule = {"name": "hot", "conditions": [HOT], "action": {"command": "OFF"}}
        await owner.post(f"{device.path}/rules", rule, expect=201)
        await owner.call("PUT", device.path, {"channels": [{"channel": 2, "kind": "RELAY"}]}, 200)
        await owner.post(f"{device.path}/command", {"cmd": "ON", "waitSeconds": 30})
        await robot.post(f"{device.path}/command", {"cmd": "OPEN"}, expect=202)
    return device


async def number_of(service: Service, device: Device) -> int:
    [[number]] = await rows(service, f"SELECT device_no FROM devices WHERE device_id = '{device.device_id}'")
    return int(number)


async def filled(service: Service, owner: ApiClient) -> tuple[Device, int]:
    device = await one_that_has_everything(service, owner)
    service.restart()  # a stop writes the last values
    number = await number_of(service, device)
    await insert_rows(service, "readings", [(number, 1_000 + at, 0, NOTHING) for at in range(MESSAGES)])
    await insert_rows(service, "rollups", [(number, 1_000 + hour, b"") for hour in range(HOURS)])
    future = 10**6
    await insert_rows(service, "device_drops", [(number, "RATE", 1, 0, None, None, None)])
    mail = ("ntc_nobody", "device_offline", device.device_id, None, "Offline", "Meter is offline", 2**52, 0)
    await insert_rows(service, "notifications", [(1_000_000 + number, *mail)])
    await insert_rows(service, "rollups_due", [(number, future + hour, 0) for hour in range(HOURS)])
    async with asyncio.timeout(TIMEOUT_S):  # the webhook was attempted; its receiver does not exist
        while not (await count_rows_of_device(service, device.device_id, number))["attempts"]:
            await asyncio.sleep(0.1)
    return device, number


async def test_nothing_is_left_of_a_deleted_device_whenever_the_service_is_killed(service: Service, owner: ApiClient) -> None:
    dice = random.Random(3)
    gone, number = await filled(service, owner)
    kept, other = await filled(service, owner)
    before = await count_rows_of_device(service, gone.device_id, number)
    assert {name for name, count in before.items() if not count} == {
        "tombstones",
        "dead_letters",
        "device_sessions",  # only in a cluster
        "device_claims",  # a device that came by a claim; its foreign key becomes null
        "left_edges",  # they go with their schedule, by its foreign key
    }, "every table is looked into"
    was = await count_rows_of_device(service, kept.device_id, other)

    await owner.delete(gone.path)
    for _ in range(KILLS):
        await asyncio.sleep(dice.uniform(0.0, 0.4))
        await service.kill_and_restart()
        await owner.get(gone.path, expect=404)
        assert gone.device_id not in {each["deviceId"] for each in await owner.get("/devices")}
    await erased(service, gone, number)
    await closed(service, number)

    assert await erased(service, gone, number) == {"events", "event_counts", "notifications"}
    assert await dangling_references(service) == []
    now: dict[str, Any] = await count_rows_of_device(service, kept.device_id, other)
    assert {name for name, count in was.items() if now[name] < count} <= {"rollups_due"}, "the other device has kept all of it"
    assert (await owner.get(kept.path))["deviceStatus"] == "ACTIVE"
    assert service.error_lines() == []


async def erased(service: Service, device: Device, number: int) -> set[str]:
    """Wait until only the intended rows are left; returns the names of their tables."""
    async with asyncio.timeout(120):
        while left := {name for name, count in (await count_rows_of_device(service, device.device_id, number)).items() if count}:
            if left <= KEPT_AFTER_DELETION:
                return left
            await asyncio.sleep(0.5)
    return left


async def closed(service: Service, number: int) -> None:
    """Make the tombstone old; the service then deletes it."""
    service.kill()
    await rows(service, f"UPDATE tombstones SET deleted_ms = 0 WHERE device_no = {number} RETURNING 1")
    await asyncio.to_thread(service.start)
    async with asyncio.timeout(TIMEOUT_S):
        while await rows(service, f"SELECT 1 FROM tombstones WHERE device_no = {number}"):
            await asyncio.sleep(0.1)
