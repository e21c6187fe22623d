"""The database stalls while a fleet keeps sending: devices wait, memory stays bounded, and no acknowledged message is
lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import aiomqtt
import pytest

from adapters.engine import _native
from support.database_probe import writes_blocked
from support.device import Device, DeviceConnection, cancel_tasks, create_device
from support.service import ApiClient, Service
from support.thoroughness import usual_or_thorough
from support.transports import DATABASES, database_settings
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.thorough

STALL_S = usual_or_thorough(7.0, 31.0)
"""Longer than the service waits for a lock (5 s), so that it sees the database fail and retries; in a thorough run longer
than the limit of a transaction (30 s)."""
LOOKS = 5
Counts = tuple[list[int], int]
MOST_MIB = 100
"""The broker's queue holds 32 MiB; the rest is room for the allocator and what a batch needs."""


@pytest.fixture(scope="module", params=DATABASES)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service"), LATCHBOARD_INGEST_LIMIT=0, **database_settings(request.param)) as service:
        yield service


def resident_mib(service: Service) -> int:
    assert service.process is not None
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return int(next(row for row in status.splitlines() if row.startswith("VmRSS")).split()[1]) // 1024


async def count_up(line: DeviceConnection, acknowledged: list[int]) -> None:
    with contextlib.suppress(aiomqtt.MqttError):
        for number in range(10**6):
            await line.client.publish(line.device.topic("telemetry"), b'{"count":%d}' % number, qos=1, timeout=60 + STALL_S)
            acknowledged.append(number)


def lengths(lists: list[list[int]]) -> list[int]:
    return [len(each) for each in lists]


async def until_they_stand_still(service: Service, owner: ApiClient, counts: Callable[[], Counts]) -> Counts:
    """The counts when messages that were stored before the stall have been confirmed: the service has answered a request and had
    a second more."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            before = counts()
            for _ in range(2):
                assert (await owner.raw.get(f"{service.url}/healthz")).status_code == 200
                await asyncio.sleep(1.0)
            if before == counts():
                return before


async def stored(owner: ApiClient, device: Device) -> set[int]:
    text = (await owner.send("GET", f"{device.path}/telemetry/export?format=csv&metric=count")).text
    return {int(float(row.split(",")[1])) for row in text.splitlines()[1:]}


async def test_a_stalled_database_delays_devices_and_loses_no_acknowledged_message(service: Service, owner: ApiClient) -> None:
    fleet = [await create_device(owner, f"Fleet {number}") for number in range(40)]
    meters = [await create_device(owner, f"Meter {number}") for number in range(4)]
    acknowledged: list[list[int]] = [[] for _ in meters]
    identities = [(each.device_id, each.credentials["mqttPassword"]) for each in fleet]
    async with contextlib.AsyncExitStack() as online:
        lines = [await online.enter_async_context(meter.online(service)) for meter in meters]
        counting = [asyncio.create_task(count_up(*each)) for each in zip(lines, acknowledged, strict=True)]
        pressure = _native.Simulation("127.0.0.1", service.mqtt_port, identities, rate=1e9, qos=1, seconds=60.0 + STALL_S)
        online.callback(pressure.stop)
        async with asyncio.timeout(TIMEOUT_S):
            while min(map(len, acknowledged)) < 20 or pressure.stats()["confirmed"] < 1_000:
                await asyncio.sleep(0.05)
        before_mib = resident_mib(service)
        async with writes_blocked(service):
            counts, confirmed = await until_they_stand_still(
                service, owner, lambda: (lengths(acknowledged), int(pressure.stats()["confirmed"]))
            )
            for _ in range(LOOKS):
                await asyncio.sleep((STALL_S - 2.0) / LOOKS)
                assert lengths(acknowledged) == counts, "a message was confirmed that is not stored"
                assert pressure.stats()["confirmed"] == confirmed
                assert resident_mib(service) < before_mib + MOST_MIB
        async with asyncio.timeout(TIMEOUT_S):
            while min(len(each) - count for each, count in zip(acknowledged, counts, strict=True)) < 20:
                await asyncio.sleep(0.05)
        assert resident_mib(service) < before_mib + MOST_MIB
        pressure.stop()
        await cancel_tasks(*counting)
    for meter, numbers in zip(meters, acknowledged, strict=True):
        assert set(numbers) <= await stored(owner, meter)
    assert service.error_lines() == []
