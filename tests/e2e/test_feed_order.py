"""The order of the live feed on PostgreSQL, from outside: clients of every instance, while devices report, buttons are pressed, and
commands and changes of the same devices come to all instances at once.

Of one device each client gets the events in the order of their positions, and its cursor never goes back."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import asyncpg
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from domain.events.cursors import MAX_WRITERS, FeedCursor
from support import postgres
from support.cluster import online_at, service_pair
from support.device import Device, DeviceConnection, create_device
from support.empty_database import empty_postgres
from support.nats import nats_nodes
from support.service import ApiClient, Service
from support.thoroughness import usual_or_thorough
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

DEVICES = 3
TURNS = usual_or_thorough(25, 150)
LAST = "The last name"


@pytest.fixture(params=["one", "two", "cluster"])
def instances(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Service]]:
    """The first one holds the devices, but in a cluster."""
    with contextlib.ExitStack() as stack:
        if request.param == "cluster":
            nodes = stack.enter_context(nats_nodes())
            asyncio.run(nodes.wait_until_ready())
            yield list(stack.enter_context(service_pair(nodes, tmp_path_factory)))
            return
        shared = {
            "LATCHBOARD_DATABASE_URL": asyncio.run(empty_postgres()),
            "LATCHBOARD_SECRET_KEYS": "shared:" + base64.b64encode(b"k" * 32).decode(),
            "LATCHBOARD_INGEST_LIMIT": 0,
        }
        more: list[dict[str, str]] = [{}] if request.param == "one" else [{}, {"LATCHBOARD_BROKER": "none"}]
        yield [
            stack.enter_context(Service(tmp_path_factory.mktemp(f"instance{number}"), **shared, **settings))
            for number, settings in enumerate(more)
        ]


@dataclass
class Follower:
    """A client of one instance, which resumes when it is told to. `seen`: the events of the log in the order of their arrival."""

    at: Service
    seen: list[tuple[str, str]] = field(default_factory=list)
    """Device and event."""
    newest: FeedCursor | None = None
    went_back: list[tuple[str, str]] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)
    """Devices whose last event has come."""

    async def follow(self, owner: ApiClient) -> None:
        cursor = ""
        while len(self.finished) < DEVICES:
            address = f"ws://127.0.0.1:{self.at.port}/api/v1/ws?audit=true{cursor}"
            with contextlib.suppress(WebSocketException, OSError):
                async with connect(address, additional_headers=owner.headers, open_timeout=TIMEOUT_S, close_timeout=1) as socket:
                    async for text in socket:
                        event = json.loads(text)
                        assert event["type"] != "resync"
                        cursor = f"&cursor={event['cursor']}"
                        self.take(event)
                        if len(self.finished) == DEVICES:
                            return

    def take(self, event: dict[str, Any]) -> None:
        before, self.newest = self.newest, FeedCursor.decode(event["cursor"])
        if before is not None and any(
            self.position(before, each) > self.position(self.newest, each) for each in range(MAX_WRITERS)
        ):
            self.went_back.append((before.encode(), event["cursor"]))
        if event.get("deviceId") and event["type"] != "telemetry":
            self.seen.append((event["deviceId"], event["eventId"]))
            if event.get("deviceName") == LAST and event.get("eventType") == "device_updated":
                self.finished.add(event["deviceId"])

    @staticmethod
    def position(cursor: FeedCursor, writer: int) -> int:
        return cursor.log.position_of(writer)


async def times(call: Callable[[int], Any]) -> None:
    for turn in range(TURNS):
        await call(turn)


async def busy(device: Device, line: DeviceConnection, owners: list[ApiClient]) -> None:
    """All at once: presses and readings of the device, and from every instance commands and changes."""

    async def command(owner: ApiClient, turn: int) -> None:
        await owner.send("POST", f"{device.path}/command", {"cmd": "TOGGLE", "waitSeconds": turn % 2})

    async def change(owner: ApiClient, turn: int) -> None:
        await owner.send("PUT", device.path, {"name": f"Pump {turn}"})

    await asyncio.gather(
        times(lambda turn: line.press_button(turn % 2 == 0)),
        times(lambda turn: line.report(n=turn)),
        *[times(lambda turn, owner=owner: command(owner, turn)) for owner in owners],
        *[times(lambda turn, owner=owner: change(owner, turn)) for owner in owners],
    )
    await owners[0].call("PUT", device.path, {"name": LAST}, 200)


@contextlib.asynccontextmanager
async def busy_devices(instances: list[Service], owner: ApiClient) -> AsyncIterator[list[tuple[Device, DeviceConnection]]]:
    async with contextlib.AsyncExitStack() as stack:
        lines = []
        for number in range(DEVICES):
            device = await create_device(owner, name=f"Pump {number}")
            at = instances[number % len(instances)] if instances[-1].settings.get("LATCHBOARD_CLUSTER") else instances[0]
            lines.append((device, await stack.enter_async_context(online_at(device, at))))
        yield lines


async def test_of_a_device_each_client_gets_the_events_in_the_order_of_their_positions(instances: list[Service]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        owners = [await stack.enter_async_context(each.api()) for each in instances]
        followers = [Follower(each) for each in instances for _ in range(2)]
        lines = await stack.enter_async_context(busy_devices(instances, owners[0]))
        following = [asyncio.create_task(each.follow(owners[0])) for each in followers]
        async with asyncio.timeout(4 * TIMEOUT_S):
            await asyncio.gather(*[busy(device, line, owners) for device, line in lines])
            await asyncio.gather(*following)
    positions = await positions_by_event()
    for follower in followers:
        by_device: dict[str, list[int]] = defaultdict(list)
        for device_id, event_id in follower.seen:
            by_device[device_id].append(positions[event_id])
        assert len(by_device) == DEVICES
        for device_id, came in by_device.items():
            late = [(before, after) for before, after in pairwise(came) if before >= after]
            assert late == [], f"of {len(came)} events of {device_id}"
        assert follower.went_back == []


async def positions_by_event() -> dict[str, int]:
    connection = await asyncpg.connect(postgres.plain_url())
    try:
        return {row["event_id"]: row["position"] for row in await connection.fetch("SELECT event_id, position FROM events")}
    finally:
        await connection.close()
