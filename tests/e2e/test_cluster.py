"""Two instances share the devices on three NATS nodes and PostgreSQL. Kills of instances and log nodes lose, repeat and reorder
nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import pytest
import websockets

from support import postgres
from support.cluster import PARTITIONS, at, online_at, service_pair, several_devices
from support.device import Device, DeviceConnection
from support.nats import NatsNodes, nats_nodes
from support.service import ApiClient, Service
from support.thoroughness import usual_or_thorough
from support.waiting import TIMEOUT_S, until

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

EDGE_EVERY = 150
PAUSE_S = 0.05
"""Between two reports: a rule that fires more than ten times a minute is disabled."""
HOT = {"name": "hot", "conditions": [{"metric": "hot", "comparator": "==", "value": 1}], "action": {"command": "ON"}}


@pytest.fixture(scope="module")
def nodes() -> Iterator[NatsNodes]:
    with nats_nodes() as started:
        asyncio.run(started.wait_until_ready())
        yield started


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory, nodes: NatsNodes) -> Iterator[tuple[Service, Service]]:
    asyncio.run(nodes.wait_until_ready())  # the test before may have killed one
    with service_pair(nodes, tmp_path_factory) as started:
        yield started


async def stored_metrics(owner: ApiClient, device: Device) -> None:
    """Wait until its first report is stored: in a cluster that is after the PUBACK."""
    await owner.wait_until(f"{device.path}/rules/context", lambda answer: sorted(answer["metrics"]) == ["hot", "n"])


async def stored_numbers(owner: ApiClient, device: Device) -> list[int]:
    readings = await owner.get(f"{device.path}/telemetry?metric=n&limit=1000")
    return [int(reading["value"]) for reading in reversed(readings)]


async def test_devices_of_both_instances_are_stored_and_rules_and_commands_reach_them(pair: tuple[Service, Service]) -> None:
    first, _ = pair
    devices = await several_devices(first)
    async with contextlib.AsyncExitStack() as stack:
        owner, other = [await stack.enter_async_context(each.api()) for each in pair]
        lines = [
            await stack.enter_async_context(online_at(device, service))
            for device, service in zip(devices, cycle(pair), strict=False)
        ]
        for line in lines:
            await line.report(n=1, hot=0)
            await stored_metrics(owner, line.device)
            await other.post(f"{line.device.path}/rules", HOT, expect=201)
        for line in lines:
            await line.report(n=2, hot=1)
            await line.next_command("ON")
            done = await other.post(f"{line.device.path}/command", {"cmd": "STATUS", "waitSeconds": 30})
            assert done["status"] == "DONE"
            assert (await owner.get(line.device.path))["isOnline"] is True
            assert await stored_numbers(other, line.device) == [1, 2]


async def test_every_instance_tells_the_state_of_the_cluster_to_admins(pair: tuple[Service, Service]) -> None:
    [pump] = await several_devices(pair[0], 1)
    async with pair[0].api() as owner, pair[1].api() as other, online_at(pump, pair[0]) as line:
        await line.report(n=1)

        def is_shared(found: Any) -> bool:
            owned = [each["partitions"] for each in found["instances"] if each["isAlive"]]
            stored = sum(each["storedEntries"] for each in found["partitions"])
            return sorted(owned) == [PARTITIONS // 2, PARTITIONS // 2] and stored == 1

        shown = [await each.wait_until("/cluster", is_shared, within_s=TIMEOUT_S) for each in (owner, other)]
        assert all(each["enabled"] for each in shown)
        assert len({each["answeredBy"] for each in shown}) == 2
        assert {each["answeredBy"] for each in shown} == {each["instance"] for each in shown[0]["instances"]}
        assert {each["waitingEntries"] for each in shown[0]["partitions"]} == {0}
        assert {each["problem"] for each in shown[0]["partitions"]} == {None}
        moved = {each["partition"] for each in shown[0]["moves"]}
        assert moved >= {each["partition"] for each in shown[0]["partitions"] if each["owner"] == shown[1]["answeredBy"]}


async def test_a_client_of_any_instance_hears_every_reading_once_and_in_order(pair: tuple[Service, Service]) -> None:
    devices = await several_devices(pair[0])
    async with contextlib.AsyncExitStack() as stack:
        lines = [
            await stack.enter_async_context(online_at(device, service))
            for device, service in zip(devices, cycle(pair), strict=False)
        ]
        feeds = []
        for service in pair:
            api = await stack.enter_async_context(service.api())
            feeds.append(await stack.enter_async_context(service.feed(api)))
        for number in range(1, 6):
            await asyncio.gather(*[line.report(n=number) for line in lines])
        for feed in feeds:
            counted = 0
            while counted < 5 * len(devices):
                await feed.wait_for("telemetry", metric="n")
                counted += 1
            for device in devices:
                numbers = [
                    each["value"] for each in feed.received if each.get("deviceId") == device.device_id and "value" in each
                ]
                assert numbers == [1, 2, 3, 4, 5]


async def test_a_feed_client_resumes_and_misses_no_reading_when_another_instance_is_killed(pair: tuple[Service, Service]) -> None:
    first, second = pair
    devices = await several_devices(second)
    expected = {(device.device_id, number) for device in devices for number in range(1, 5)}
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(second.api())
        lines = [await stack.enter_async_context(online_at(device, second)) for device in devices]
        async with second.feed(api) as feed:
            await asyncio.gather(*[line.report(n=1) for line in lines])
            for _ in lines:
                await feed.wait_for("telemetry", metric="n")
            first.kill()
            for number in (2, 3, 4):
                await asyncio.gather(*[line.report(n=number) for line in lines])
            with contextlib.suppress(websockets.ConnectionClosed):
                while True:
                    await feed.wait_for("telemetry", metric="n")
        received = feed.received
        async with second.feed(api, f"?cursor={received[-1]['cursor']}") as feed:
            while {
                (each["deviceId"], each["value"]) for each in [*received, *feed.received] if each.get("metric") == "n"
            } != expected:
                await feed.wait_for("telemetry", metric="n")


async def test_a_device_that_moves_to_another_instance_stays_online_and_has_one_connection(pair: tuple[Service, Service]) -> None:
    first, second = pair
    [pump] = await several_devices(first, 1)
    async with first.api() as owner, at(pump, first).online(first) as old:
        await old.report(n=1)
        async with online_at(pump, second) as new:
            await asyncio.wait_for(old.disconnected.wait(), TIMEOUT_S)
            await new.report(n=2)
            done = await owner.post(f"{pump.path}/command", {"cmd": "ON", "waitSeconds": 30})
            assert done["status"] == "DONE"
            assert (await new.next_command("ON"))["id"] == done["executionId"]
            log = (await owner.get(f"/events?limit=200&deviceId={pump.device_id}"))["data"]
            assert [event["eventType"] for event in log].count("device_offline") == 0


async def test_a_revoked_device_is_disconnected_from_the_other_instance(pair: tuple[Service, Service]) -> None:
    first, second = pair
    [pump] = await several_devices(first, 1)
    async with first.api() as owner, online_at(pump, second) as line:
        await line.report(n=1)
        await owner.post(f"{pump.path}/revoke", {})
        await asyncio.wait_for(line.disconnected.wait(), TIMEOUT_S)


class Talker:
    """A device that reports numbers, one after the other, to whichever instance it reaches, and repeats what was not confirmed."""

    def __init__(self, device: Device, services: Sequence[Service]) -> None:
        self.device = device
        self._services = cycle(services)
        self._begin_ms = int(time.time() * 1000)
        self.confirmed = 0
        self.worst_s = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            service = next(self._services)
            if not service.is_running:
                await asyncio.sleep(0.02)
                continue
            with contextlib.suppress(Exception):
                async with at(self.device, service).online(service) as line:
                    while not stop.is_set():
                        await self._report(line, self.confirmed + 1)
                        self.confirmed += 1
                        await asyncio.sleep(PAUSE_S)

    async def _report(self, line: DeviceConnection, number: int) -> None:
        began = time.monotonic()
        hot = int(number % EDGE_EVERY == 0)
        sending = asyncio.create_task(line.publish("telemetry", {"ts": self._begin_ms + number, "m": {"n": number, "hot": hot}}))
        ended = asyncio.create_task(line.disconnected.wait())
        await asyncio.wait([sending, ended], return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not sending.done():
            sending.cancel()
            raise ConnectionError("the instance is gone")
        await sending
        self.worst_s = max(self.worst_s, time.monotonic() - began)


@contextlib.asynccontextmanager
async def talking(pair: tuple[Service, Service]) -> AsyncIterator[Sequence[Talker]]:
    """Devices that report at both instances; in the end nothing of it is lost, repeated or reordered."""
    devices = await several_devices(pair[0])
    async with pair[0].api() as owner:
        for device, service in zip(devices, cycle(pair), strict=False):
            async with online_at(device, service) as line:
                await line.report(hot=0, n=0)
                await stored_metrics(owner, device)
            await owner.post(f"{device.path}/rules", HOT, expect=201)
    talkers = [Talker(device, [*pair[number % 2 :], *pair[: number % 2]]) for number, device in enumerate(devices)]
    stop = asyncio.Event()
    tasks = [asyncio.create_task(talker.run(stop)) for talker in talkers]
    try:
        yield talkers
        await confirmed_more(talkers, 12)
    finally:
        stop.set()
        await asyncio.gather(*tasks)
    async with pair[1].api() as owner:
        for talker in talkers:
            await check(owner, talker)
    print("longest confirmation", round(max(talker.worst_s for talker in talkers), 2), "s of", sum(t.confirmed for t in talkers))


async def test_kills_of_instances_and_log_nodes_lose_repeat_and_reorder_nothing(
    pair: tuple[Service, Service], nodes: NatsNodes
) -> None:
    async with talking(pair) as talkers:
        for turn in range(usual_or_thorough(2, 10)):
            await confirmed_more(talkers, 12)
            victim = pair[turn % 2]
            if turn % 3 == 2:
                await paused(victim, 6.0)
            else:
                victim.kill()
            await confirmed_more(talkers, 12)
            nodes.kill(turn % 3)
            await confirmed_more(talkers, 12)
            nodes.start(turn % 3)
            if not victim.is_running:
                await start_again(victim)


async def start_again(victim: Service) -> None:
    """As a service manager does: an instance ends if the log's nodes, of which one has just come back, do not answer in time."""
    for _ in range(4):
        with contextlib.suppress(AssertionError):
            await asyncio.to_thread(victim.start)
        if victim.is_running:
            return
    await asyncio.to_thread(victim.start)


async def test_a_log_node_that_hangs_keeps_no_device_from_being_confirmed(
    pair: tuple[Service, Service], nodes: NatsNodes
) -> None:
    async with talking(pair) as talkers:
        for number in range(3):
            await confirmed_more(talkers, 12)
            with nodes.hanging(number):
                await confirmed_more(talkers, 12)


async def paused(service: Service, pause_s: float) -> None:
    assert service.process is not None
    os.kill(service.process.pid, signal.SIGSTOP)
    await asyncio.sleep(pause_s)
    os.kill(service.process.pid, signal.SIGCONT)


async def confirmed_more(talkers: Sequence[Talker], count: int) -> None:
    wanted = [talker.confirmed + count for talker in talkers]
    async with asyncio.timeout(3 * TIMEOUT_S):
        while any(talker.confirmed < each for talker, each in zip(talkers, wanted, strict=True)):
            await asyncio.sleep(0.02)


async def check(owner: ApiClient, talker: Talker) -> None:
    path = talker.device.path
    expected = list(range(1, talker.confirmed + 1))
    edges = talker.confirmed // EDGE_EVERY

    async with asyncio.timeout(TIMEOUT_S):
        while len(numbers := [each for each in await stored_numbers(owner, talker.device) if each]) < len(expected):
            await asyncio.sleep(0.1)
    assert sorted(numbers)[: len(expected)] == expected  # the last one may be stored and not confirmed
    assert len(numbers) == len(set(numbers)) <= len(expected) + 1
    page = await owner.get(f"{path}/executions?limit=200")
    fired = [one["cmd"] for one in page["data"]].count("ON")
    assert edges <= fired <= edges + (len(numbers) // EDGE_EVERY - edges)


@pytest.fixture
def pair_with_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, NatsNodes]]:
    """The first of two instances, and nodes that the test may stop."""
    with nats_nodes() as nodes:
        asyncio.run(nodes.wait_until_ready())
        with service_pair(nodes, tmp_path_factory) as (first, _):
            yield first, nodes


async def test_readiness_and_one_log_line_say_that_the_log_does_not_answer(pair_with_nodes: tuple[Service, NatsNodes]) -> None:
    service, nodes = pair_with_nodes
    nodes.stop()
    async with service.api() as api:
        for path in ("readyz", "readyz/devices"):
            answer = await until(partial(api.raw.get, f"{service.url}/{path}"), lambda found: found.status_code == 503)
            assert "has not answered for" in answer.json()["troubles"]["cluster log"]
    await until_logged(service, "partitions wait for the cluster's log")
    await asyncio.sleep(3)  # several rounds of every partition
    assert service.log(1_000_000).count("partitions wait for the cluster's log") == 1
    for number in range(3):
        nodes.start(number)
    await until_logged(service, "the cluster's log answers again")


async def until_logged(service: Service, text: str) -> None:
    async def read() -> str:
        return service.log(1_000_000)

    await until(read, lambda log: text in log)
