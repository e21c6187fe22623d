"""The database of a cluster is away for all instances: telemetry is confirmed, and stored afterwards."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import cycle

import aiomqtt
import httpx
import pytest

from faults.cluster import Cluster
from support import postgres
from support.cluster import online_at, several_devices
from support.device import Device
from support.nats import nats_nodes
from support.service import Service
from support.waiting import TIMEOUT_S, until

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

ROUNDS = 100
"""Reports of each device while the database is away."""
START_MS = int(time.time() * 1000) - 60_000
Pair = tuple[Service, Service, Cluster]


@contextlib.asynccontextmanager
async def cluster_pair(folders: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Two instances, and a PostgreSQL of their own."""
    with nats_nodes() as nodes:
        await nodes.wait_until_ready()
        async with contextlib.AsyncExitStack() as stack:
            database = await asyncio.to_thread(Cluster)
            stack.push_async_callback(asyncio.to_thread, database.remove)
            await asyncio.to_thread(database.start)
            shared = {
                "LATCHBOARD_DATABASE_URL": database.database_url,
                "LATCHBOARD_SECRET_KEYS": "shared:" + base64.b64encode(b"k" * 32).decode(),
                "LATCHBOARD_CLUSTER": nodes.url,
                "LATCHBOARD_CLUSTER_MONITOR": nodes.monitor_url,
                "LATCHBOARD_CLUSTER_PARTITIONS": 8,
                "LATCHBOARD_CLUSTER_LOG_MIB": 8,
                "LATCHBOARD_INGEST_LIMIT": 0,
            }
            pair = [Service(folders.mktemp(name), **shared) for name in ("first", "second")]
            for each in pair:
                await asyncio.to_thread(each.__enter__)
                stack.push_async_callback(asyncio.to_thread, each.__exit__, None, None, None)
            yield pair[0], pair[1], database


async def until_database_is_away(service: Service) -> None:
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client, asyncio.timeout(TIMEOUT_S):
        while "latchboard_database_away 1.0" not in (await client.get(f"{service.url}/metrics")).text:
            await asyncio.sleep(0.05)


async def statuses(service: Service) -> tuple[int, int]:
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        paths = ("/readyz", "/readyz/devices")
        people, devices = [(await client.get(service.url + path)).status_code for path in paths]
        return people, devices


async def stored_numbers(service: Service, device: Device) -> list[int]:
    async with service.api() as owner:
        return [int(each["value"]) for each in await owner.get(f"{device.path}/telemetry?metric=n&limit=1000")]


async def until_stored(service: Service, device: Device, expected: Sequence[int]) -> None:
    """Newest first: all of them, in order, once."""
    async with asyncio.timeout(TIMEOUT_S):
        while len(found := await stored_numbers(service, device)) < len(expected):
            await asyncio.sleep(0.2)
    assert found == list(reversed(expected))


async def report(places: Sequence[tuple[Device, Service]], numbers: range) -> None:
    """Each device reports the numbers at its instance; see `report_at`."""
    await asyncio.gather(*[report_at(device, service, numbers) for device, service in places])


async def report_at(device: Device, service: Service, numbers: range) -> None:
    """As a device does: it sends again, with the same time, what was not confirmed. An instance that gets no processor for two
    seconds ends the connections of its devices."""
    waiting = deque(numbers)
    async with asyncio.timeout(TIMEOUT_S):
        while waiting:
            try:
                async with online_at(device, service) as line:
                    while waiting:
                        await line.publish("telemetry", {"ts": START_MS + waiting[0], "m": {"n": waiting[0]}})
                        waiting.popleft()
            except aiomqtt.MqttError:
                await asyncio.sleep(0.1)


async def test_telemetry_is_confirmed_while_no_instance_reaches_the_database_and_stored_afterwards(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with cluster_pair(tmp_path_factory) as (first, second, database):
        devices = await several_devices(second)
        places = list(zip(devices, cycle((first, second)), strict=False))
        async with second.api() as owner:
            for device in devices:  # `first` reads the credentials again, and finds no other password
                await owner.call("PUT", device.path, {"location": "Yard"}, 200)
        await report(places, range(1, 21))
        await asyncio.to_thread(database.stop)
        for service in (first, second):
            await until_database_is_away(service)
        await report(places, range(21, 21 + ROUNDS))
        for service in (first, second):
            await until(partial(statuses, service), lambda found: found == (503, 200))
        crossed = list(zip(devices, cycle((second, first)), strict=False))  # another connection, at the other instance
        await report(crossed, range(21 + ROUNDS, 22 + ROUNDS))
        await asyncio.to_thread(database.start)
        for device in devices:
            await until_stored(first, device, range(1, 22 + ROUNDS))
