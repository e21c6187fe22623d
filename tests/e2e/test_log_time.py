"""What waited because the database was away, or because the owner of the partition hung, is judged at the time when it arrived."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support import postgres
from support.cluster import online_at, service_pair, several_devices
from support.device import Device, DeviceConnection, cancel_tasks, create_device
from support.nats import NatsNodes, nats_nodes
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

METRICS = ("beat", "brief", "hot", "pressure")
QUIET_S = 8


def a_rule(name: str, metric: str, comparator: str, value: float, **more: Any) -> dict[str, Any]:
    condition = {"metric": metric, "comparator": comparator, "value": value}
    return {"name": name, "conditions": [condition], "action": {"command": "OFF"}, **more}


RULES = (
    a_rule("held", "hot", "==", 1, forSeconds=3),
    a_rule("brief", "brief", "==", 1, forSeconds=1),
    a_rule("cooling", "pressure", ">", 5, cooldownSeconds=4),
    a_rule("quiet", "beat", "silent", QUIET_S),
)


EXPECTED = {"held": 1, "brief": 1, "cooling": 2}


@pytest.fixture
def nodes() -> Iterator[NatsNodes]:
    if not postgres.available():
        pytest.skip("needs PostgreSQL")
    with nats_nodes() as started:
        asyncio.run(started.wait_until_ready())
        yield started


@pytest.fixture
def pair(nodes: NatsNodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    with service_pair(nodes, tmp_path_factory) as started:
        yield started


@pytest.fixture
def own_postgres(nodes: NatsNodes) -> Iterator[postgres.Cluster]:
    with tempfile.TemporaryDirectory(prefix="latchboard-pg-", ignore_cleanup_errors=True) as data:
        cluster = postgres.Cluster(Path(data))
        cluster.create()
        cluster.start()
        try:
            asyncio.run(cluster.create_database("latchboard"))
            yield cluster
        finally:
            cluster.stop("immediate")


@pytest.fixture
def pair_on_it(
    nodes: NatsNodes, own_postgres: postgres.Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Service, Service]]:
    with service_pair(nodes, tmp_path_factory, LATCHBOARD_DATABASE_URL=own_postgres.url("latchboard")) as started:
        yield started


async def matches(owner: ApiClient, device: Device) -> Counter[str]:
    page = await owner.get(f"/events?limit=200&deviceId={device.device_id}&type=rule_matched")
    return Counter(event["description"].split("'")[1] for event in page["data"])


async def create_rules(owner: ApiClient, line: DeviceConnection) -> None:
    await line.report(**dict.fromkeys(METRICS, 0))
    await owner.wait_until(f"{line.device.path}/rules/context", lambda answer: sorted(answer["metrics"]) == sorted(METRICS))
    for rule in RULES:
        await owner.post(f"{line.device.path}/rules", rule, expect=201)


@asynccontextmanager
async def ready_devices(service: Service) -> AsyncIterator[tuple[ApiClient, list[DeviceConnection]]]:
    """Connected to this instance, with their rules. Their partitions belong to either one."""
    devices = await several_devices(service, 4)
    async with contextlib.AsyncExitStack() as stack:
        owner = await stack.enter_async_context(service.api())
        lines = [await stack.enter_async_context(online_at(device, service)) for device in devices]
        await asyncio.gather(*[create_rules(owner, line) for line in lines])
        yield owner, lines


@asynccontextmanager
async def beating(lines: list[DeviceConnection]) -> AsyncIterator[None]:
    """The silence of no device lasts long enough for its rule."""

    async def beat(line: DeviceConnection) -> None:
        while True:
            with contextlib.suppress(Exception):
                await line.report(beat=1)
            await asyncio.sleep(0.5)

    tasks = [asyncio.create_task(beat(line)) for line in lines]
    try:
        yield
    finally:
        await cancel_tasks(*tasks)


async def live_through(line: DeviceConnection) -> None:
    """Some seven seconds in which `held` and `brief` end between two messages, and `cooling` matches twice."""
    await line.report(hot=1, brief=1, pressure=9)
    await asyncio.sleep(1.4)
    await line.report(brief=0, pressure=0)
    await asyncio.sleep(5)
    await line.report(hot=0, pressure=9)


async def judged(owner: ApiClient, line: DeviceConnection) -> Counter[str]:
    """What matched, when all that the device has said is evaluated."""
    await line.report(last=1)
    async with asyncio.timeout(TIMEOUT_S):
        while "last" not in (await owner.get(f"{line.device.path}/rules/context"))["metrics"]:
            await asyncio.sleep(0.1)
    return await matches(owner, line.device)


async def test_while_postgresql_was_away_timers_ran_with_the_messages(
    own_postgres: postgres.Cluster, pair_on_it: tuple[Service, Service]
) -> None:
    _, second = pair_on_it
    async with ready_devices(second) as (owner, lines), beating(lines):
        await asyncio.to_thread(own_postgres.stop, "immediate")
        await asyncio.sleep(3)
        await asyncio.gather(*[live_through(line) for line in lines])
        await asyncio.to_thread(own_postgres.start)
        async with asyncio.timeout(TIMEOUT_S):
            while (await owner.send("GET", lines[0].device.path)).status_code != 200:
                await asyncio.sleep(0.2)
        assert [await judged(owner, line) for line in lines] == [EXPECTED] * len(lines)


async def test_while_the_owner_hung_timers_ran_with_the_messages(pair: tuple[Service, Service]) -> None:
    """The devices are connected to the other instance, so all that they say is heard. They say nothing in between: any message
    would bring their rules to its time."""
    first, second = pair
    assert first.process is not None
    async with ready_devices(second) as (owner, lines):
        os.kill(first.process.pid, signal.SIGSTOP)
        try:
            await asyncio.gather(*[live_through(line) for line in lines])
            found = [await judged(owner, line) for line in lines]
            assert [(each["held"], each["brief"], each["cooling"]) for each in found] == [(1, 1, 2)] * len(lines)
        finally:
            os.kill(first.process.pid, signal.SIGCONT)


async def test_while_the_database_was_locked_timers_ran_with_the_messages(tmp_path: Path) -> None:
    """A single instance: the messages wait, without their PUBACK, in the queue of its broker."""
    with Service(tmp_path) as service:
        async with service.api() as owner:
            device = await create_device(owner)
            async with device.online(service) as line, asyncio.TaskGroup() as said:
                await create_rules(owner, line)
                with contextlib.closing(sqlite3.connect(service.data_dir / "latchboard.db", isolation_level=None)) as other:
                    other.execute("BEGIN IMMEDIATE")
                    for hot in (1, 0):
                        said.create_task(line.report(hot=hot))
                        await asyncio.sleep(4)
                    other.execute("ROLLBACK")
                assert (await judged(owner, line))["held"] == 1
