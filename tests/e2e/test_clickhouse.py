"""Old readings move to ClickHouse while the service is killed: each is read back once, and a deleted device leaves nothing there."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator

import pytest

from app.workers.retention import ROLLUP_WAIT_S
from domain.kernel.clock import DAY_MS, HOUR_MS
from domain.telemetry.ports import NOT_ANSWERING
from support.clickhouse import NEEDS_CHDB, ClickHouseServer, running_server
from support.database_probe import rows
from support.device import Device, create_device
from support.service import ApiClient, Service
from support.transports import DATABASES, database_settings
from support.waiting import until

pytestmark = [pytest.mark.clickhouse, NEEDS_CHDB]

MESSAGES, KILLS = 240, 3
OLD = time.time_ns() // 1_000_000 - 10 * DAY_MS


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    yield from running_server(tmp_path_factory.mktemp("clickhouse"))


@pytest.fixture(scope="module", params=DATABASES)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, clickhouse: ClickHouseServer
) -> Iterator[Service]:
    settings = database_settings(request.param) | {"LATCHBOARD_CLICKHOUSE_URL": clickhouse.url, "LATCHBOARD_READINGS_DAYS": 2}
    with Service(tmp_path_factory.mktemp("service"), LATCHBOARD_INGEST_LIMIT=0, **settings) as service:
        yield service


async def left_to_move(service: Service) -> int:
    [[count]] = await rows(service, f"SELECT count(*) FROM readings WHERE ts < {OLD + 5 * DAY_MS}")
    return int(count)


async def moved(service: Service) -> None:
    async def left() -> int:
        return await left_to_move(service)

    await until(left, lambda count: count == 0)


async def killed_with_an_insert_on_its_way(service: Service, clickhouse: ClickHouseServer) -> None:
    """ClickHouse carries the insert out when nobody waits for the answer any more."""
    clickhouse.pause()
    await service.kill_and_restart()

    async def hours_without_rollup() -> int:
        [[count]] = await rows(service, f"SELECT count(*) FROM rollups_due WHERE hour < {(OLD + 5 * DAY_MS) // HOUR_MS}")
        return int(count)

    await until(hours_without_rollup, lambda count: count == 0)
    await asyncio.sleep(ROLLUP_WAIT_S + 1)
    assert await left_to_move(service) > 0
    service.kill()
    clickhouse.resume()
    await asyncio.to_thread(service.start)


async def exported(owner: ApiClient, device: Device) -> list[float]:
    answer = await owner.send("GET", f"{device.path}/telemetry/export?format=csv")
    assert answer.status_code == 200, answer.text
    lines = answer.text.strip().splitlines()
    value = lines[0].split(",").index("value")
    return [float(line.split(",")[value]) for line in lines[1:]]


async def test_nothing_is_lost_or_doubled_whenever_the_service_is_killed(
    service: Service, owner: ApiClient, clickhouse: ClickHouseServer
) -> None:
    dice = random.Random(5)
    device, other = await create_device(owner, "Meter"), await create_device(owner, "Other")
    sent = 0
    for kill in range(KILLS):
        for each in (device, other):
            async with each.online(service) as line:
                for number in range(sent, sent + MESSAGES // KILLS):
                    # Hours apart, so that roll-ups and the move go on for a while.
                    await line.publish("telemetry", {"ts": OLD + number * 600_000, "m": {"power": number + 0.5}})
        sent += MESSAGES // KILLS
        if kill == KILLS - 1:
            await killed_with_an_insert_on_its_way(service, clickhouse)
        else:
            await asyncio.sleep(dice.uniform(0.0, 2.0))
            await service.kill_and_restart()
        assert await exported(owner, device) == [number + 0.5 for number in range(sent)]
    await moved(service)
    for each in (device, other):
        assert await exported(owner, each) == [number + 0.5 for number in range(sent)]
    newest = await owner.get(f"{device.path}/telemetry?limit=3")
    assert [reading["value"] for reading in newest] == [sent - 0.5, sent - 1.5, sent - 2.5]
    assert (await owner.get(f"{device.path}/telemetry/latest"))["telemetry"][0]["value"] == sent - 0.5

    clickhouse.stop()
    refused = await owner.get(f"{device.path}/telemetry?limit=3", expect=503)
    assert NOT_ANSWERING in str(refused)
    recent = await owner.get(f"{device.path}/telemetry?since={OLD + 9 * DAY_MS}")
    assert recent == []
    await owner.delete(device.path)
    assert (await owner.raw.get(f"{service.url}/readyz")).status_code == 200
    clickhouse.start()

    async def rows_by_device() -> str:
        ours = f"device_id IN ('{device.device_id}', '{other.device_id}')"
        return clickhouse.query(
            f"SELECT device_id, uniqExact(at_ms, digest) FROM readings WHERE {ours} GROUP BY device_id FORMAT CSV"
        )

    left = await until(rows_by_device, lambda found: device.device_id not in found)
    assert left == f'"{other.device_id}",{MESSAGES}\n'
