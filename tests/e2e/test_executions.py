"""Each command ends with a known status despite offline devices, deadlines, repeated and late results, and kills."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiomqtt
import httpx
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from support.device import Device, cancel_tasks, create_device
from support.service import ApiClient, Service
from support.thoroughness import usual_or_thorough
from support.transports import DATABASES, TRANSPORTS, Transport, connect_options, database_settings, tls_settings, transport_name
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.thorough

LEVEL = {"name": "LEVEL", "label": "Level", "paramsSchema": {"type": "object", "required": ["n"]}}
KILLS = usual_or_thorough(2, 6)
LONG_S, SHORT_S = 600, 1


@pytest.fixture(scope="module", params=DATABASES)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    with Service(folder, LATCHBOARD_INGEST_LIMIT=0, **tls_settings(folder), **database_settings(request.param)) as service:
        yield service


@pytest.fixture(params=TRANSPORTS, ids=transport_name)
def way(request: pytest.FixtureRequest) -> Transport:
    return request.param  # type: ignore[no-any-return]


async def a_dimmer(owner: ApiClient) -> Device:
    device = await create_device(owner, "Dimmer")
    await owner.post(f"{device.path}/commands", LEVEL, expect=201)
    return device


async def queued(owner: ApiClient, device: Device, n: int, ttl_s: int) -> str:
    answer = await owner.post(f"{device.path}/command", {"cmd": "LEVEL", "params": {"n": n}, "ttlSeconds": ttl_s})
    assert answer["status"] == "QUEUED"
    return str(answer["executionId"])


async def statuses(owner: ApiClient, device: Device) -> dict[str, str]:
    page = await owner.get(f"{device.path}/executions?limit=200")
    return {each["executionId"]: each["status"] for each in page["data"]}


async def figure(service: Service, name: str) -> int:
    """The number of results without effect, by reason."""
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        text = (await client.get(f"{service.url}/metrics")).text
    found = re.search(rf'latchboard_command_reports_ignored_total{{reason="{name}"}} ([\d.]+)', text)
    return int(float(found[1])) if found else 0


async def ended_all(owner: ApiClient, device: Device) -> dict[str, str]:
    async with asyncio.timeout(TIMEOUT_S):
        while not (found := await statuses(owner, device)) or {"QUEUED", "SENT", "ACKED"} & set(found.values()):
            await asyncio.sleep(0.05)
    return found


async def test_queued_commands_arrive_in_order_and_expired_ones_never(service: Service, owner: ApiClient, way: Transport) -> None:
    dimmer = await a_dimmer(owner)
    async with dimmer.online(service, **connect_options(service, way), **kept(way)) as line:
        await line.drain_commands(owner)  # the deadline also holds for a stored session
    async with asyncio.timeout(TIMEOUT_S):
        while (await owner.get(dimmer.path))["isOnline"]:
            await asyncio.sleep(0.05)
    ids = [await queued(owner, dimmer, n, SHORT_S if n % 3 == 0 else LONG_S) for n in range(15)]
    short, long = ids[::3], [each for n, each in enumerate(ids) if n % 3]
    async with asyncio.timeout(TIMEOUT_S):
        while {(await statuses(owner, dimmer))[each] for each in short} != {"EXPIRED"}:
            await asyncio.sleep(0.05)

    async with dimmer.online(service, **connect_options(service, way), **kept(way)) as line:
        assert await line.drain_commands(owner) == ["LEVEL"] * len(long)
    assert [order["id"] for order in line.commands[: len(long)]] == long
    assert [order["params"]["n"] for order in line.commands[: len(long)]] == [n for n in range(15) if n % 3]
    found = await statuses(owner, dimmer)
    assert {found[each] for each in long} == {"DONE"}
    assert {found[each] for each in short} == {"EXPIRED"}


async def test_a_queued_command_does_not_outlive_a_revocation(service: Service, owner: ApiClient) -> None:
    dimmer = await a_dimmer(owner)
    waiting = asyncio.create_task(owner.post(f"{dimmer.path}/command", {"cmd": "ON", "ttlSeconds": 86_400, "waitSeconds": 30}))
    async with asyncio.timeout(TIMEOUT_S):
        while "QUEUED" not in (await statuses(owner, dimmer)).values():
            await asyncio.sleep(0.05)
    await owner.post(f"{dimmer.path}/revoke")
    answer = await waiting
    assert (answer["status"], answer["result"]["code"]) == ("CANCELLED", "DEVICE_REVOKED")
    dimmer.credentials = await owner.post(f"{dimmer.path}/credentials", {})
    async with dimmer.online(service) as line:
        assert await line.drain_commands(owner) == []


def kept(way: Transport) -> dict[str, Any]:
    """A session that the broker keeps for a disconnected client."""
    if way[0] == 4:
        return {"clean_session": False}
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = 600
    return {"clean_start": False, "properties": properties}


async def test_a_command_that_expired_while_the_service_was_down_never_runs(service: Service, owner: ApiClient) -> None:
    dimmers = [await a_dimmer(owner) for _ in TRANSPORTS]
    for dimmer in dimmers:
        await queued(owner, dimmer, 1, 2)
        await queued(owner, dimmer, 2, LONG_S)
    begun = time.monotonic()
    service.kill()
    await asyncio.sleep(max(0.0, 2.1 - (time.monotonic() - begun)))
    await service.kill_and_restart()
    for dimmer, way in zip(dimmers, TRANSPORTS, strict=True):
        async with dimmer.online(service, **connect_options(service, way)) as line:
            await line.drain_commands(owner)
        assert [order["params"]["n"] for order in line.commands[:-1]] == [2]
        assert sorted((await ended_all(owner, dimmer)).values()) == ["DONE", "DONE", "EXPIRED"]


async def timed_out(owner: ApiClient, pump: Device) -> str:
    """The id of a command that was sent to the device and got no result. On a slow machine a first one may not be sent in time."""
    for ttl_s in (SHORT_S, 10 * SHORT_S, 30 * SHORT_S):
        made = (await owner.post(f"{pump.path}/command", {"cmd": "STATUS", "ttlSeconds": ttl_s}))["executionId"]
        found = await owner.wait_until(f"{pump.path}/executions/{made}", lambda each: each["finishedAt"])
        if found["status"] == "TIMED_OUT":
            break
        assert found["status"] == "EXPIRED"
    return str(made)


async def test_repeated_and_unknown_results_change_nothing_and_a_late_one_replaces_an_assumed_end(
    service: Service, owner: ApiClient, way: Transport
) -> None:
    pump, other = await create_device(owner), await create_device(owner)
    before = {name: await figure(service, name) for name in ("duplicate", "late", "unknown")}
    async with pump.online(service, auto_reply=False, **connect_options(service, way)) as line:
        first = (await owner.post(f"{pump.path}/command", {"cmd": "STATUS"}))["executionId"]
        await line.next_command("STATUS")
        for status in ("ack", "ack", "done", "done", "error", "ack"):
            await line.publish("result", {"id": first, "status": status, "code": status})
        await owner.wait_until(f"{pump.path}/executions/{first}", lambda each: each["finishedAt"])

        slow = await timed_out(owner, pump)
        await line.next_command("STATUS")
        await line.publish("result", {"id": slow, "status": "ack"})
        await line.publish("result", {"id": slow, "status": "done", "data": "late"})

        foreign = (await owner.post(f"{other.path}/command", {"cmd": "STATUS"}))["executionId"]
        await line.publish("result", {"id": foreign, "status": "done"})
        await line.publish("result", {"id": "exe_00000000000000000000", "status": "done"})

    async def counted() -> dict[str, int]:
        return {name: await figure(service, name) - was for name, was in before.items()}

    async with asyncio.timeout(TIMEOUT_S):
        while sum((await counted()).values()) < 7:
            await asyncio.sleep(0.05)
    assert await counted() == {"duplicate": 2, "late": 3, "unknown": 2}
    found = await owner.get(f"{pump.path}/executions/{first}")
    assert (found["status"], found["result"]["code"]) == ("DONE", "done")
    late = await owner.wait_until(f"{pump.path}/executions/{slow}", lambda each: each["status"] == "DONE")
    assert late["result"]["data"] == "late"
    assert (await owner.get(f"{other.path}/executions/{foreign}"))["status"] == "QUEUED"
    page = await owner.get("/events", params={"deviceId": pump.device_id, "type": "command_result"})
    reported = [each["description"] for each in page["data"] if "EXPIRED" not in each["description"]]
    assert len(reported) == 3
    assert "DONE instead of TIMED_OUT" in reported[0]


async def test_a_command_that_the_device_has_acknowledged_is_not_sent_again_though_its_power_was_lost(
    service: Service, owner: ApiClient, way: Transport
) -> None:
    """Nobody knows how far it came. What is so after the restart is the device's state."""
    pump = await create_device(owner)
    for ttl_s in (10 * SHORT_S, 30 * SHORT_S):  # on a slow machine the first may be over before the device is back
        async with pump.online(service, auto_reply=False, **connect_options(service, way)) as line:
            cut = (await owner.post(f"{pump.path}/command", {"cmd": "ON", "ttlSeconds": ttl_s}))["executionId"]
            assert (await line.next_command("ON"))["id"] == cut
            await line.publish("result", {"id": cut, "status": "ack"})
            await owner.wait_until(f"{pump.path}/executions/{cut}", lambda each: each["status"] in ("ACKED", "TIMED_OUT"))
        async with pump.online(service, **connect_options(service, way)) as line:
            await line.publish("state", {"relay": "OFF", "by": "boot"}, retain=True)
            assert await line.drain_commands(owner) == [], "it is not repeated"
            in_time = (await owner.get(f"{pump.path}/executions/{cut}"))["status"] == "ACKED"
            found = await owner.wait_until(f"{pump.path}/executions/{cut}", lambda each: each["finishedAt"])
            assert (found["status"], found["result"]["code"]) == ("TIMED_OUT", "NO_ANSWER")
            assert await line.drain_commands(owner) == []
        if in_time:
            break
    assert in_time
    assert (await owner.get(pump.path))["relayState"] is False


class Firmware:
    """A device that reconnects after each disconnect and, like native firmware, remembers the ids that it has run."""

    def __init__(self, device: Device, service: Service, way: Transport) -> None:
        self.device, self._service, self._way = device, service, way
        self.ran: list[int] = []
        self.repeats = 0
        self._known: set[str] = set()

    async def play(self) -> None:
        while True:
            with contextlib.suppress(aiomqtt.MqttError, OSError):
                async with self.device.client(self._service, **connect_options(self._service, self._way)) as client:
                    await client.subscribe(self.device.topic("cmd"), qos=1)
                    async for message in client.messages:
                        await self._obey(client, json.loads(bytes(message.payload)))
            await asyncio.sleep(0.05)

    async def _obey(self, client: aiomqtt.Client, order: dict[str, Any]) -> None:
        if order["id"] in self._known:
            self.repeats += 1
        elif order["cmd"] == "LEVEL":
            self.ran.append(order["params"]["n"])
        self._known.add(order["id"])
        result = json.dumps({"id": order["id"], "status": "done"})
        await client.publish(self.device.topic("result"), result, qos=1, timeout=5)


@contextlib.asynccontextmanager
async def at_work(*coroutines: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        yield
    finally:
        await cancel_tasks(*tasks)


async def accepted_at_last(owner: ApiClient, device: Device, accepted: list[str]) -> None:
    """Send one more command. If the response was lost, look whether the command was stored before sending it again."""
    n = len(accepted)
    async with asyncio.timeout(TIMEOUT_S):
        while len(accepted) == n:
            with contextlib.suppress(httpx.TransportError):
                page = await owner.get(f"{device.path}/executions?limit=5")
                taken = [each["executionId"] for each in page["data"] if each["params"] == {"n": n}]
                if not taken:
                    order = {"cmd": "LEVEL", "params": {"n": n}, "ttlSeconds": LONG_S}
                    taken = [(await owner.post(f"{device.path}/command", order))["executionId"]]
                accepted += taken
            await asyncio.sleep(0.02)


async def test_kills_at_any_moment_neither_lose_nor_repeat_nor_reorder_a_command(service: Service, owner: ApiClient) -> None:
    """One device for each transport; each is sent numbered commands one after the other, also while the service is down."""
    dice, stop = random.Random(11), asyncio.Event()
    fleet = [Firmware(await a_dimmer(owner), service, way) for way in TRANSPORTS]
    given: dict[str, list[str]] = {each.device.device_id: [] for each in fleet}

    async def command(device: Device) -> None:
        accepted = given[device.device_id]
        while not stop.is_set():
            await accepted_at_last(owner, device, accepted)

    sending = [asyncio.create_task(command(each.device)) for each in fleet]
    async with at_work(*(each.play() for each in fleet)):
        for _ in range(KILLS):
            counts = {name: len(ids) for name, ids in given.items()}
            async with asyncio.timeout(TIMEOUT_S):
                while any(len(ids) < counts[name] + 2 for name, ids in given.items()):
                    await asyncio.sleep(0.01)
            await asyncio.sleep(dice.uniform(0.0, 0.3))
            await service.kill_and_restart()
        stop.set()
        await asyncio.wait_for(asyncio.gather(*sending), TIMEOUT_S)
        for each in fleet:
            found = await ended_all(owner, each.device)
            assert set(found) <= set(given[each.device.device_id])
            assert set(found.values()) == {"DONE"}
    for each in fleet:
        assert each.ran == list(range(len(given[each.device.device_id]))), transport_name(each._way)
    assert service.error_lines() == []
