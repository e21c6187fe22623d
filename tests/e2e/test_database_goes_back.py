"""A standby that does not have the last commits takes over from PostgreSQL: the service says so, and nothing pretends to go on."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import aiomqtt
import pytest
from websockets.exceptions import ConnectionClosed

from support import postgres
from support.device import Device, DeviceConnection, create_device, register_device
from support.service import ApiClient, FeedClient, Service
from support.waiting import TIMEOUT_S, until

Result = TypeVar("Result")

pytestmark = pytest.mark.skipif(not postgres.available(), reason="PostgreSQL is not installed")


@asynccontextmanager
async def own_postgres(folder: Path) -> AsyncIterator[tuple[postgres.Cluster, Service]]:
    with tempfile.TemporaryDirectory(
        prefix="latchboard-pg-", ignore_cleanup_errors=True
    ) as data:  # its user reads no test's folder
        cluster = postgres.Cluster(Path(data))
        cluster.create()
        cluster.start()
        try:
            await cluster.create_database("latchboard")
            with Service(folder, LATCHBOARD_DATABASE_URL=cluster.url("latchboard")) as service:
                yield cluster, service
        finally:
            cluster.stop("immediate")


@asynccontextmanager
async def feed_begun_anew(feed: FeedClient, service: Service, owner: ApiClient, query: str = "") -> AsyncIterator[FeedClient]:
    """The feed after a failover. Its clients are told to begin anew; one whose messages could not be read from the database
    meanwhile is closed with 1013 and connects again."""
    async with AsyncExitStack() as stack:
        try:
            await feed.wait_for("resync")
            await feed.wait_for("initial_state")
        except ConnectionClosed as closed:
            if closed.rcvd is None or closed.rcvd.code != 1013:
                raise
            feed = await retry_while_refused(lambda: stack.enter_async_context(service.feed(owner, query)), ConnectionClosed)
        yield feed


async def retry_while_refused(work: Callable[[], Awaitable[Result]], refusal: type[Exception]) -> Result:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return await work()
            except refusal:
                await asyncio.sleep(0.2)


async def wait_until_ready(owner: ApiClient, service: Service) -> None:
    await service.wait_for_log("everything was read anew")
    await until(lambda: owner.send("GET", f"http://127.0.0.1:{service.port}/readyz"), lambda answer: answer.status_code == 200)


@asynccontextmanager
async def connected(line: DeviceConnection, owner: ApiClient, service: Service) -> AsyncIterator[DeviceConnection]:
    """The device once the service is ready again: with the connection that it has kept, or, as firmware does it, with a new one
    where the service has closed it, because it could not renew its lease for so long or could not store a message."""
    await wait_until_ready(owner, service)
    if "its devices are disconnected" in service.log():
        await line.wait_for_disconnect()
    if not line.disconnected.is_set():
        yield line
        return
    async with AsyncExitStack() as stack:
        online = lambda: stack.enter_async_context(line.device.online(service))  # noqa: E731 - its type is inferred
        yield await retry_while_refused(online, aiomqtt.MqttError)


async def report_as_firmware(device: Device, service: Service, **values: float) -> None:
    """Connect and send until the message is confirmed."""

    async def send() -> None:
        async with device.online(service) as line:
            await line.report(**values)

    await retry_while_refused(send, aiomqtt.MqttError)


async def events_of(api: ApiClient, kind: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = (await api.get(f"/events?type={kind}"))["data"]
    return found


async def test_a_failover_to_an_older_standby_is_told_and_heard_by_every_client(tmp_path: Path) -> None:
    async with own_postgres(tmp_path) as (cluster, service), service.api() as owner:
        pump = await create_device(owner)
        async with pump.online(service) as line:
            await line.report(temperature=1)
        standby = await asyncio.to_thread(cluster.copy_standby)
        async with pump.online(service) as line:
            for value in range(2, 12):
                await line.report(temperature=value)
        lost = await register_device(owner)
        cursor = (await owner.get("/events?limit=1"))["cursor"]
        async with service.feed(owner, "?audit=true") as feed:
            await asyncio.to_thread(cluster.fail_over, standby)
            async with feed_begun_anew(feed, service, owner, "?audit=true") as feed_after:
                await wait_until_ready(owner, service)
                for _ in range(10):
                    await register_device(owner)
                for _ in range(10):
                    await feed_after.wait_for("audit", eventType="device_registered")
        await owner.get(lost, expect=404)
        assert (await owner.get(f"/events?limit=1&cursor={cursor}", expect=410))["error"] == "OTHER_LIFE"
        [told] = await events_of(owner, "database_restored")
        assert "standby" in str(told["description"])
        await report_as_firmware(pump, service, temperature=99)
        readings = await owner.get(f"{pump.path}/telemetry?limit=100")
        values = [reading["value"] for reading in readings]
        assert values[-1] == 1
        assert set(values[:-1]) == {99}
        latest = await owner.get(f"{pump.path}/telemetry/latest")
        assert [one["value"] for one in latest["telemetry"]] == [99]
        await service.wait_for_log('"level": "critical"')
        assert service.log().count('"level": "critical"') == 1


async def test_a_second_failover_to_a_standby_from_before_the_first_is_told_too(tmp_path: Path) -> None:
    """Its copy has the life from before the first failover, whose cursors must not go on."""
    async with own_postgres(tmp_path) as (cluster, service), service.api() as owner:
        await create_device(owner)
        standbys = [await asyncio.to_thread(cluster.copy_standby) for _ in range(2)]
        await register_device(owner)
        cursors = [(await owner.get("/events?limit=1"))["cursor"]]
        for count, standby in enumerate(standbys, 1):
            await asyncio.to_thread(cluster.fail_over, standby)
            await until(
                lambda: asyncio.to_thread(service.log), lambda log, wanted=count: log.count("everything was read anew") == wanted
            )
            await retry_while_refused(lambda: register_device(owner), AssertionError)
            for cursor in cursors:
                assert (await owner.get(f"/events?limit=1&cursor={cursor}", expect=410))["error"] == "OTHER_LIFE"
            cursors.append((await owner.get("/events?limit=1"))["cursor"])
        assert service.log().count('"level": "critical"') == 2


async def test_a_server_that_only_restarts_changes_nothing(tmp_path: Path) -> None:
    async with own_postgres(tmp_path) as (cluster, service), service.api() as owner:
        await register_device(owner)
        async with service.feed(owner, "?audit=true") as feed:
            for how in ("immediate", "fast"):
                await register_device(owner)
                await feed.wait_for("audit", eventType="device_registered")
                await asyncio.to_thread(cluster.stop, how)
                await asyncio.to_thread(cluster.start)
                async with asyncio.timeout(TIMEOUT_S):
                    while (await owner.send("GET", "/events?limit=1")).status_code != 200:
                        await asyncio.sleep(0.1)
            cursor = (await owner.get("/events?limit=1"))["cursor"]
            await owner.get(f"/events?limit=1&cursor={cursor}")
            await register_device(owner)
            await feed.wait_for("audit", eventType="device_registered")
            assert "resync" not in {message["type"] for message in feed.received}
        assert await events_of(owner, "database_restored") == []


async def copy_before_edge(owner: ApiClient, pump: Device, cluster: postgres.Cluster) -> tuple[Path, int]:
    """A standby with a slot whose edge is still to come. Copying takes as long as the machine is busy, so a later edge is tried
    where the first has come meanwhile. Returns the standby and how many slots there are; the last one is that slot."""
    for slots, lead_s in enumerate((8, 30, 60), 1):
        due = int(time.time()) + lead_s
        slot = {"slot": slots, "onTs": due, "offTs": due + 3_600, "enabled": True, "misfireGraceSeconds": 3_600}
        await owner.post(f"{pump.path}/schedules", {**slot, "onCommand": {"command": "TOGGLE"}}, expect=201)
        standby = await asyncio.to_thread(cluster.copy_standby)
        if time.time() < due - 1:
            return standby, slots
        await asyncio.to_thread(shutil.rmtree, standby)
    raise AssertionError("copying the database takes more than a minute")


async def test_an_edge_that_ran_before_the_failover_is_not_run_again(tmp_path: Path) -> None:
    async with own_postgres(tmp_path) as (cluster, service), service.api() as owner:
        pump = await create_device(owner)
        async with pump.online(service) as line:
            standby, slots = await copy_before_edge(owner, pump, cluster)
            await owner.wait_until(f"{pump.path}/schedules", lambda found: found[-1]["lastOutcome"] == "FIRED")
            async with service.feed(owner) as feed:
                await asyncio.to_thread(cluster.fail_over, standby)
                async with feed_begun_anew(feed, service, owner):
                    pass
            found = await until(
                lambda: owner.send("GET", f"{pump.path}/schedules"),
                lambda answer: answer.status_code == 200 and answer.json()[-1]["lastOutcome"] is not None,
            )
            assert found.json()[-1]["lastOutcome"] == "MISSED"
            async with connected(line, owner, service) as back:
                await back.drain_commands(owner)
                commands = line.commands if back is line else [*line.commands, *back.commands]
                assert [each["cmd"] for each in commands].count("TOGGLE") == slots


async def test_a_device_that_connected_after_the_copy_stays_online_and_gets_its_commands(tmp_path: Path) -> None:
    async with own_postgres(tmp_path) as (cluster, service), service.api() as owner:
        pump = await create_device(owner)
        standby = await asyncio.to_thread(cluster.copy_standby)
        async with pump.online(service) as line, service.feed(owner) as feed:
            await owner.wait_until(pump.path, lambda found: found["isOnline"])
            await line.report(temperature=1)
            await asyncio.to_thread(cluster.fail_over, standby)
            async with feed_begun_anew(feed, service, owner), connected(line, owner, service) as back:
                await owner.post(f"{pump.path}/command", {"cmd": "ON"})
                await back.next_command("ON")
