"""An instance that is cut off from the database, without a word: it closes itself to devices, says so, and is replaced."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from support import postgres
from support.cluster import at, online_at, several_devices
from support.device import Device, DeviceConnection, cancel_tasks, create_device
from support.empty_database import empty_postgres
from support.nats import nats_nodes
from support.service import Service
from support.silent_network import SilentNetwork, silent_network
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S, until

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

Pair = tuple[Service, Service, SilentNetwork]


@contextlib.asynccontextmanager
async def instances(folders: pytest.TempPathFactory, **settings: object) -> AsyncIterator[Pair]:
    """The first one reaches PostgreSQL through the network that can fall silent."""
    url = await empty_postgres()
    shared = {
        "LATCHBOARD_SECRET_KEYS": "shared:" + base64.b64encode(b"k" * 32).decode(),
        "LATCHBOARD_INGEST_LIMIT": 0,
        **settings,
    }
    async with silent_network(url) as network:
        first = Service(folders.mktemp("first"), LATCHBOARD_DATABASE_URL=network.url, **shared)
        second = Service(folders.mktemp("second"), LATCHBOARD_DATABASE_URL=url, **shared)
        async with contextlib.AsyncExitStack() as stack:
            for each in (first, second):
                await asyncio.to_thread(each.__enter__)
                stack.push_async_callback(asyncio.to_thread, each.__exit__, None, None, None)
            yield first, second, network


async def accepts_devices(service: Service) -> bool:
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", service.mqtt_port)
        writer.close()
        await writer.wait_closed()
        return True
    return False


async def until_devices_are(service: Service, *, accepted: bool) -> float:
    """Returns when it was so, monotonic."""
    await until(lambda: accepts_devices(service), lambda seen: seen is accepted)
    return time.monotonic()


async def until_replaced(first: Service, second: Service) -> tuple[float, bool]:
    """When the second one lets devices in, and whether the first one was closed to them then."""
    opened_at = await until_devices_are(second, accepted=True)
    return opened_at, not await accepts_devices(first)


async def readiness(service: Service) -> tuple[int, dict[str, str]]:
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        answer = await client.get(f"{service.url}/readyz")
    return answer.status_code, json.loads(answer.text).get("troubles", {})


async def ended_sessions(service: Service) -> float:
    """How many database sessions of dead instances this one has ended, once it has ended any."""
    async with asyncio.timeout(TIMEOUT_S), httpx.AsyncClient(timeout=OPERATION_TIMEOUT_S) as client:
        while True:
            page = (await client.get(f"{service.url}/metrics")).text
            [line] = [line for line in page.splitlines() if line.startswith("latchboard_database_sessions_ended_total ")]
            if (found := float(line.split()[1])) > 0:
                return found
            await asyncio.sleep(0.05)


async def stored_numbers(service: Service, device: Device) -> list[int]:
    async with service.api() as owner:
        return [int(each["value"]) for each in await owner.get(f"{device.path}/telemetry?metric=n&limit=1000")]


async def report_until_refused(line: DeviceConnection, confirmed: list[int]) -> None:
    """Report numbers one after the other; those with a PUBACK are added to `confirmed`."""
    with contextlib.suppress(Exception):
        for number in range(1, 100_000):
            await line.report(n=number)
            confirmed.append(number)


async def report_at(service: Service, device: Device) -> None:
    async with online_at(device, service) as line:
        await report_until_refused(line, [])


async def test_a_leader_that_is_cut_off_closes_itself_to_devices_and_is_replaced(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with instances(tmp_path_factory) as (first, second, network):
        async with first.api() as owner:
            pump = await create_device(owner)
        confirmed: list[int] = []
        async with at(pump, first).online(first) as line:
            reports = asyncio.create_task(report_until_refused(line, confirmed))
            while len(confirmed) < 20:
                await asyncio.sleep(0.01)
            network.silent, cut_at = True, time.monotonic()
            opened = asyncio.create_task(until_replaced(first, second))
            closed_at = await until_devices_are(first, accepted=False)
            async with asyncio.timeout(TIMEOUT_S):
                await reports  # the connection was closed, so the report that waited for its PUBACK failed
        status, troubles = await readiness(first)
        assert (status, {"lease", "database"} <= troubles.keys()) == (503, True), troubles
        opened_at, was_closed = await opened
        assert was_closed, "two instances let devices in at once"
        print(f"closed after {closed_at - cut_at:.1f} s, replaced after {opened_at - cut_at:.1f} s")
        async with at(pump, second).online(second) as line:
            await line.report(n=0)
            numbers = await stored_numbers(second, pump)
        assert set(confirmed) <= set(numbers)
        assert len(numbers) == len(set(numbers))
        network.silent = False
        assert first.process is not None
        assert await asyncio.to_thread(first.process.wait, TIMEOUT_S) == 1
        await asyncio.to_thread(first.start)
        assert not await accepts_devices(first)


async def test_a_leader_without_a_standby_lets_devices_in_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with instances(tmp_path_factory) as (first, second, network):
        second.kill()
        async with first.api() as owner:
            pump = await create_device(owner)
        async with at(pump, first).online(first) as line:
            await line.report(n=1)
        network.silent = True
        await until_devices_are(first, accepted=False)
        network.silent = False
        await until_devices_are(first, accepted=True)
        await until(lambda: readiness(first), lambda seen: seen[0] == 200)
        async with at(pump, first).online(first) as line:  # nothing waits for a statement that the silence met
            await line.report(n=2)
        assert sorted(await stored_numbers(first, pump)) == [1, 2]


async def test_an_instance_of_a_cluster_that_is_cut_off_closes_itself_to_devices(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with nats_nodes() as nodes:
        await nodes.wait_until_ready()
        cluster = {
            "LATCHBOARD_CLUSTER": nodes.url,
            "LATCHBOARD_CLUSTER_MONITOR": nodes.monitor_url,
            "LATCHBOARD_CLUSTER_PARTITIONS": 8,
            "LATCHBOARD_CLUSTER_LOG_MIB": 8,
        }
        async with instances(tmp_path_factory, **cluster) as (first, second, network):
            [pump, *_] = devices = await several_devices(second)
            confirmed: list[int] = []
            async with online_at(pump, first) as line:
                reports = asyncio.create_task(report_until_refused(line, confirmed))
                while len(confirmed) < 20:
                    await asyncio.sleep(0.01)
                others = [asyncio.create_task(report_at(second, device)) for device in devices[1:]]  # the first one owns some
                network.silent_from, cut_at = b"UPDATE 1\0", time.monotonic()  # in a transaction that has locked a row
                closed_at = await until_devices_are(first, accepted=False)
                async with asyncio.timeout(TIMEOUT_S):
                    await reports
                await cancel_tasks(*others)
            status, troubles = await readiness(first)
            assert (status, {"lease", "database"} <= troubles.keys()) == (503, True), troubles
            assert await ended_sessions(second) >= 1
            for device in devices:  # each partition has an owner that stores
                async with online_at(device, second) as line:
                    await line.report(n=0)
                await until(lambda device=device: stored_numbers(second, device), lambda seen: 0 in seen)  # type: ignore[misc]
            print(f"closed after {closed_at - cut_at:.1f} s")
            numbers = await stored_numbers(second, pump)
            assert set(confirmed) <= set(numbers)
            assert len(numbers) == len(set(numbers))
            network.silent = False
            await until_devices_are(first, accepted=True)
            async with online_at(pump, first) as line:
                await line.report(n=-1)
