"""Readings that a device uploads late: `telemetry/latest` shows them where it has nothing newer, also after SIGKILL, and no rule
sees them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from domain.kernel.clock import to_iso
from support.database_probe import rows
from support.device import Device, DeviceConnection, create_device
from support.service import ApiClient, Service
from support.thoroughness import usual_or_thorough
from support.transports import ALL_DATABASES, database_settings
from support.waiting import TIMEOUT_S

HOT = {"name": "too hot", "conditions": [{"metric": "t", "comparator": ">", "value": 30}], "action": {"command": "OFF"}}


@pytest.fixture(scope="module", params=ALL_DATABASES)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service"), LATCHBOARD_INGEST_LIMIT=0, **database_settings(request.param)) as service:
        yield service


async def latest(owner: ApiClient, device: Device) -> dict[str, tuple[Any, str]]:
    shown = (await owner.get(f"{device.path}/telemetry/latest"))["telemetry"]
    return {each["metric"]: (each["value"], each["recordedAt"]) for each in shown}


async def wait_for_checkpoint(service: Service, at_ms: int) -> None:
    """Until the newest time of a device's stored checkpoint is this one."""
    async with asyncio.timeout(TIMEOUT_S):
        while not await rows(service, f"SELECT 1 FROM device_latest WHERE ts = {at_ms}"):
            await asyncio.sleep(0.05)


async def test_a_late_metric_survives_a_kill_and_drives_no_rule(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    now_ms = int(time.time() * 1000)
    async with pump.online(service) as line:
        await line.publish("telemetry", {"ts": now_ms, "m": {"p": 1}})
        await wait_for_checkpoint(service, now_ms)
        await line.publish("telemetry", [{"ts": now_ms - 60_000 + n, "m": {"t": 30 + n, "p": 9}} for n in (2, 3, 1)])
        await owner.post(f"{pump.path}/rules", HOT, expect=201)
        await service.kill_and_restart()
    expected = {"p": (1, to_iso(now_ms)), "t": (33, to_iso(now_ms - 59_997))}
    assert await latest(owner, pump) == expected
    async with pump.online(service) as line:
        await line.publish("telemetry", {"ts": now_ms + 1, "m": {"p": 2}})
        await line.publish("telemetry", {"ts": now_ms - 70_000, "m": {"t": 99}})
        assert await line.drain_commands(owner) == []
        assert await latest(owner, pump) == {**expected, "p": (2, to_iso(now_ms + 1))}


async def test_the_latest_values_are_those_with_the_greatest_times_through_kills(service: Service, owner: ApiClient) -> None:
    meter, dice = await create_device(owner), random.Random(7)
    stored: dict[str, tuple[int, int]] = {}
    for _ in range(usual_or_thorough(3, 12)):
        async with meter.online(service) as line:
            for _ in range(dice.randrange(1, 40)):
                await send_at_any_time(line, stored, dice)
            await asyncio.sleep(dice.choice((0, 0, 6 * dice.random())))
            for _ in range(dice.randrange(1, 5)):
                await send_at_any_time(line, stored, dice)
        await service.kill_and_restart()
        assert await latest(owner, meter) == {name: (value, to_iso(at_ms)) for name, (value, at_ms) in stored.items()}


async def send_at_any_time(line: DeviceConnection, stored: dict[str, tuple[int, int]], dice: random.Random) -> None:
    """Send a value of one of six metrics, of now or of the last minute."""
    at_ms = int(time.time() * 1000) - dice.choice((0, dice.randrange(60_000)))
    metric, value = dice.choice("abcdef"), dice.randrange(1_000_000)
    await line.publish("telemetry", {"ts": at_ms, "m": {metric: value}})
    if at_ms >= stored.get(metric, (0, 0))[1]:
        stored[metric] = (value, at_ms)
