"""A model of the feed: devices that switch, clients that connect, disconnect, read slowly and resume, grants that are created and
deleted, and a service that is killed at any moment. All connections of a client together receive exactly what the log contains,
and every reading that was confirmed to its device."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiomqtt
import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from support.device import Device, DeviceConnection, create_device
from support.empty_database import empty_postgres
from support.service import ApiClient, Service
from support.thoroughness import usual_or_thorough
from support.transports import DATABASES
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S

pytestmark = pytest.mark.thorough

SHOWN = ("relay_changed", "device_online", "device_offline")
TURNS = usual_or_thorough(3, 6)
AWAY = (OSError, WebSocketException, TimeoutError, EOFError)


@pytest.fixture(params=DATABASES)
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    settings: dict[str, Any] = {"LATCHBOARD_INGEST_LIMIT": 0}
    if request.param == "postgres":
        settings["LATCHBOARD_DATABASE_URL"] = await empty_postgres()
        settings["LATCHBOARD_SECRET_KEYS"] = "model:" + base64.b64encode(b"k" * 32).decode()
    with Service(tmp_path, **settings) as running:
        yield running


@dataclass
class Client:
    """It keeps its cursor and the received events. `slow` clients read slowly; all are disconnected now and then."""

    headers: dict[str, str]
    cursor: str
    slow: bool
    chance: random.Random
    seen: list[str] = field(default_factory=list)
    resyncs: int = 0

    async def follow(self, service: Service, done: asyncio.Event) -> None:
        while not done.is_set():
            with contextlib.suppress(*AWAY):
                await self._connection(service, self.chance.randrange(1, 40))
            await asyncio.sleep(self.chance.random() / 5)

    async def catch_up(self, service: Service, wanted: list[str]) -> None:
        """Wait until all of these have been received."""
        async with asyncio.timeout(TIMEOUT_S):
            while missing := set(wanted) - set(self.seen):
                with contextlib.suppress(*AWAY):
                    await self._connection(service, len(missing))

    async def _connection(self, service: Service, events: int) -> None:
        address = f"ws://127.0.0.1:{service.port}/api/v1/ws?types={','.join(SHOWN)}&cursor={self.cursor}"
        async with connect(
            address, additional_headers=self.headers, open_timeout=OPERATION_TIMEOUT_S, close_timeout=0.5, max_queue=2
        ) as socket:
            while events:
                reply = json.loads(await asyncio.wait_for(socket.recv(), 2))
                self.cursor = reply.get("cursor", self.cursor)
                self.resyncs += reply["type"] == "resync"
                if reply["type"] in SHOWN:
                    self.seen.append(reply["eventId"])
                    events -= 1
                    if self.slow:
                        await asyncio.sleep(self.chance.random() / 20)
            if self.chance.random() < 0.5:
                socket.transport.abort()


async def test_resuming_clients_receive_exactly_the_log(service: Service) -> None:
    chance = random.Random(5)
    async with contextlib.AsyncExitStack() as stack:
        owner = await stack.enter_async_context(service.api())
        pumps = [await create_device(owner) for _ in range(3)]
        key = await owner.post("/keys", {"name": "Robot"}, expect=201)
        granted = {"apiKeyId": key["keyId"], "commands": ["*"], "scope": "READ"}
        await owner.post(f"{pumps[0].path}/grants", granted, expect=201)
        async with service.feed(owner) as feed:
            begin = feed.state["cursor"]
        people = [Client(owner.headers, begin, number % 2 == 1, random.Random(number)) for number in range(4)]
        robots = [Client({"X-Api-Key": key["key"]}, begin, number == 1, random.Random(9 + number)) for number in range(2)]
        done = asyncio.Event()
        following = [asyncio.create_task(client.follow(service, done)) for client in (*people, *robots)]
        coming = asyncio.create_task(come_and_go(owner, pumps[1], granted, chance, done))
        for turn in range(TURNS):
            happening = asyncio.create_task(happen(service, pumps, chance))
            if turn < TURNS - 1:
                await asyncio.sleep(0.2 + chance.random())
                await service.kill_and_restart()
            await happening
        done.set()
        await asyncio.gather(coming, *following)
        await owner.wait_until("/devices", lambda devices: not any(device["isOnline"] for device in devices))
        log = await whole_log(owner)
    everything = [event["id"] for event in log]
    for client in people:
        await client.catch_up(service, everything)
        assert (client.resyncs, client.seen) == (0, everything)
    always, never = ([event["id"] for event in log if event["deviceId"] == pump.device_id] for pump in (pumps[0], pumps[2]))
    for robot in robots:
        await robot.catch_up(service, always)
        assert [one for one in robot.seen if one in set(always)] == always
        assert not set(robot.seen) & set(never)
        assert len(robot.seen) == len(set(robot.seen))
        order = {one: number for number, one in enumerate(everything)}
        assert [order[one] for one in robot.seen] == sorted(order[one] for one in robot.seen)


async def test_resuming_clients_receive_every_confirmed_reading(service: Service) -> None:
    """Some readings are late uploads. A client may get a reading twice, but always with the same id."""
    chance = random.Random(8)
    confirmed: list[int] = []
    async with service.api() as owner:
        meter = await create_device(owner)
        async with service.feed(owner) as feed:
            reader = ReadingClient(owner.headers, feed.state["cursor"])
        done = asyncio.Event()
        reading = asyncio.create_task(reader.follow(service, chance, done))
        for turn in range(TURNS):
            reporting = asyncio.create_task(report(service, meter, chance, confirmed))
            if turn < TURNS - 1:
                await asyncio.sleep(0.2 + chance.random())
                await service.kill_and_restart()
            await reporting
        done.set()
        await reading
        await reader.catch_up(service, set(confirmed))
        assert len(confirmed) > TURNS
        assert reader.resyncs == 0
        log = await owner.get("/events", params={"type": "telemetry", "deviceId": meter.device_id, "limit": 200})
        stored = {event["id"]: float(event["description"].removeprefix("number = ")) for event in log["data"]}
    assert {event_id: reader.seen[event_id] for event_id in stored} == stored
    assert len(set(reader.seen.values())) == len(reader.seen)


@dataclass
class ReadingClient:
    """It keeps its cursor, and the values of the readings by event id."""

    headers: dict[str, str]
    cursor: str
    seen: dict[str, float] = field(default_factory=dict)
    resyncs: int = 0

    async def follow(self, service: Service, chance: random.Random, done: asyncio.Event) -> None:
        while not done.is_set():
            with contextlib.suppress(*AWAY):
                await self._connection(service, chance.randrange(1, 20))
            await asyncio.sleep(chance.random() / 5)

    async def catch_up(self, service: Service, wanted: set[int]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while wanted - set(self.seen.values()):
                with contextlib.suppress(*AWAY):
                    await self._connection(service, 500)

    async def _connection(self, service: Service, events: int) -> None:
        address = f"ws://127.0.0.1:{service.port}/api/v1/ws?cursor={self.cursor}"
        async with connect(
            address, additional_headers=self.headers, open_timeout=OPERATION_TIMEOUT_S, close_timeout=0.5
        ) as socket:
            for _ in range(events):
                event = json.loads(await asyncio.wait_for(socket.recv(), 2))
                self.cursor = event.get("cursor", self.cursor)
                self.resyncs += event["type"] == "resync"
                if event["type"] == "telemetry":
                    self.seen[event["eventId"]] = event["value"]


async def report(service: Service, meter: Device, chance: random.Random, confirmed: list[int]) -> None:
    """The meter reports numbers that count up, until the service ends; every fifth is a late upload of some hours ago."""
    with contextlib.suppress(aiomqtt.MqttError, TimeoutError):
        async with asyncio.timeout(TIMEOUT_S), meter.online(service) as line:
            for _ in range(chance.randrange(20, 40)):
                number = len(confirmed) + chance.randrange(1_000_000) * 1_000
                late_ms = 0 if chance.random() < 0.8 else chance.randrange(10_000, 9_000_000)
                await line.publish("telemetry", {"ts": int(time.time() * 1000) - late_ms, "m": {"number": number}})
                confirmed.append(number)
                await asyncio.sleep(chance.random() / 50)


async def happen(service: Service, pumps: list[Device], chance: random.Random) -> None:
    """Each device switches a random number of times, or until the service ends."""

    async def one(pump: Device) -> None:
        with contextlib.suppress(aiomqtt.MqttError, TimeoutError):
            async with asyncio.timeout(TIMEOUT_S), pump.online(service) as line:
                await switch(line)

    async def switch(line: DeviceConnection) -> None:
        for number in range(chance.randrange(10, usual_or_thorough(30, 60))):
            await line.press_button(number % 2 == 0)
            await asyncio.sleep(chance.random() / 50)

    await asyncio.gather(*[one(pump) for pump in pumps])


async def come_and_go(
    owner: ApiClient, pump: Device, granted: dict[str, Any], chance: random.Random, done: asyncio.Event
) -> None:
    """The robot's second grant is created and deleted repeatedly."""
    grant: str | None = None
    while not done.is_set():
        with contextlib.suppress(httpx.HTTPError, AssertionError):  # the service may be down at this moment
            if grant is None:
                grant = (await owner.post(f"{pump.path}/grants", granted, expect=201))["grantId"]
            else:
                await owner.delete(f"{pump.path}/grants/{grant}")
                grant = None
        await asyncio.sleep(chance.random() / 3)


async def whole_log(owner: ApiClient) -> list[dict[str, Any]]:
    """Public events, oldest first, page by page."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = await owner.get(f"/events?limit=50{cursor}")
        found += [event for event in page["data"] if event["eventType"] in SHOWN]
        if not page["hasMore"]:
            return found[::-1]
        cursor = f"&cursor={page['cursor']}"
