"""No clock is trusted: wrong timestamps of a device, and the clock of the service set by an hour while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from support.device import Device, DeviceConnection, create_device
from support.machine_clock import MachineClock
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

HOUR_MS = 3_600_000
_clocks: dict[int, MachineClock] = {}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("clocks")
    clock = MachineClock(folder / "clock")
    with Service(folder / "service", folder, **clock.settings) as service:
        _clocks[id(service)] = clock
        yield service


@pytest.fixture
def clock(service: Service) -> MachineClock:
    return _clocks[id(service)]


@pytest.fixture
async def owner(service: Service) -> AsyncIterator[ApiClient]:
    async with service.api() as api:
        await service.sign_in_again(api)
        yield api


async def create_rule(owner: ApiClient, device: Device, command: str, metric: str = "t", **fields: Any) -> None:
    condition = {"metric": metric, "comparator": ">", "value": 30}
    body = {"name": command, "conditions": [condition], "action": {"command": command}} | fields
    await owner.post(f"{device.path}/rules", body, expect=201)


async def report_at(line: DeviceConnection, ts: int, **values: float) -> None:
    await line.publish("telemetry", {"ts": ts, "m": values})


async def test_one_wrong_timestamp_is_shown_and_switches_no_rule_off(
    service: Service, owner: ApiClient, clock: MachineClock
) -> None:
    pump = await create_device(owner)
    async with pump.online(service) as line:
        now_ms = clock.now_ms()
        await report_at(line, now_ms + 10 * HOUR_MS, t=20)
        await owner.wait_until(f"{pump.path}/telemetry", lambda found: len(found) == 1)
        [reading] = await owner.get(f"{pump.path}/telemetry")
        assert reading["reportedAt"] > reading["recordedAt"]
        await create_rule(owner, pump, "ON")
        await report_at(line, clock.now_ms(), t=31)
        assert (await line.next_command())["cmd"] == "ON"
        await report_at(line, clock.now_ms(), t=20)
        [plain, *_] = await owner.wait_until(f"{pump.path}/telemetry", lambda found: len(found) == 3)
        assert "reportedAt" not in plain
        export = await owner.send("GET", f"{pump.path}/telemetry/export?format=csv")
        head, *rows = [line.split(",") for line in export.text.splitlines()]
        assert [dict(zip(head, row, strict=True))["reportedAt"] for row in rows] == [reading["reportedAt"], "", ""]
        skew = await owner.wait_until(
            f"/events?deviceId={pump.device_id}&type=device_clock_skew", lambda page: page["data"], within_s=TIMEOUT_S
        )
        assert "600 min ahead" in skew["data"][0]["description"] or "10 h ahead" in skew["data"][0]["description"]
        await owner.wait_until(pump.path, lambda found: abs(found["health"]["clockOffsetMs"]) < HOUR_MS, within_s=TIMEOUT_S)


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_step_of_the_clock_neither_delays_nor_hastens_what_is_running(
    service: Service, owner: ApiClient, clock: MachineClock, hours: int
) -> None:
    """Set while a rule waits, a cooldown runs and a command is open; each ends by the real time."""
    pump, away = await create_device(owner), await create_device(owner, "Away")
    async with pump.online(service) as line:
        await line.report(t=20, long=20, now=20)
        await create_rule(owner, pump, "ON", forSeconds=3)
        await create_rule(owner, pump, "TOGGLE", "long", forSeconds=600)
        await create_rule(owner, pump, "OFF", "now")
        await line.report(t=31, long=31)
        short = await owner.post(f"{away.path}/command", {"cmd": "ON", "ttlSeconds": 5})
        lasting = await owner.post(f"{away.path}/command", {"cmd": "OFF", "ttlSeconds": 120})
        await clock.step_running(service, owner, hours=hours)

        async with asyncio.timeout(TIMEOUT_S):
            assert (await line.next_command())["cmd"] == "ON"
        await line.report(now=31)
        assert (await line.next_command())["cmd"] == "OFF"
        await owner.wait_until(
            f"{away.path}/executions/{short['executionId']}", lambda found: found["status"] == "EXPIRED", within_s=TIMEOUT_S
        )
        assert (await owner.get(f"{away.path}/executions/{lasting['executionId']}"))["status"] == "QUEUED"
        async with away.online(service) as other:
            assert (await other.next_command())["cmd"] == "OFF"

        await clock.step_running(service, owner, hours=-hours)
        await line.report(now=20)
        await line.report(now=31)
        assert (await line.next_command())["cmd"] == "OFF"
        assert await line.drain_commands(owner) == []


async def test_a_start_after_a_clock_that_was_ahead(service: Service, owner: ApiClient, clock: MachineClock) -> None:
    """The hour that was too many is still in the database."""
    pump = await create_device(owner)
    await clock.step_running(service, owner, hours=1)
    async with pump.online(service) as line:
        await line.report(t=20)
        await create_rule(owner, pump, "ON", forSeconds=2)
        await line.report(t=31)
        await owner.wait_until(f"{pump.path}/telemetry", lambda found: len(found) == 2)
    service.kill()
    clock.step(hours=-1)
    service.start()
    await service.sign_in_again(owner)
    async with pump.online(service) as line, asyncio.timeout(TIMEOUT_S):
        await line.report(t=31)
        assert (await line.next_command())["cmd"] == "ON"
        await line.report(t=20)
        await line.report(t=32)
        assert (await line.next_command())["cmd"] == "ON"
