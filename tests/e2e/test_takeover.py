"""Two instances compete for the devices: one is leader, the other waits and takes over, however the first one ends."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed

from support import postgres
from support.device import Device, DeviceConnection, create_device
from support.empty_database import empty_postgres
from support.service import ApiClient, Service
from support.thoroughness import usual_or_thorough
from support.waiting import TIMEOUT_S

pytestmark = [pytest.mark.thorough, pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")]

HOT = {"name": "hot", "conditions": [{"metric": "n", "comparator": ">=", "value": 1_000}], "action": {"command": "ON"}}


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    shared = {
        "LATCHBOARD_DATABASE_URL": asyncio.run(empty_postgres()),
        "LATCHBOARD_SECRET_KEYS": "shared:" + base64.b64encode(b"k" * 32).decode(),
        "LATCHBOARD_INGEST_LIMIT": 0,
    }
    with (
        Service(tmp_path_factory.mktemp("first"), **shared) as first,
        Service(tmp_path_factory.mktemp("second"), **shared) as second,
    ):
        yield first, second


def lets_devices_in(service: Service) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", service.mqtt_port), 1):
        return True
    return False


async def taken_over(service: Service) -> float:
    """The seconds until this instance is leader."""
    began = time.monotonic()
    async with asyncio.timeout(TIMEOUT_S):
        while not lets_devices_in(service):
            await asyncio.sleep(0.02)
    return time.monotonic() - began


async def a_pump(holder: Service) -> Device:
    """Create the device at the leader, so that it can connect at once."""
    async with holder.api() as owner:
        return moved(await create_device(owner), holder)


def moved(pump: Device, service: Service) -> Device:
    """Act as a load balancer: the device's next connection goes to the instance that accepts it."""
    pump.credentials["mqttPort"] = service.mqtt_port
    return pump


async def test_one_instance_holds_the_devices_and_both_serve_the_api(pair: tuple[Service, Service]) -> None:
    first, second = pair
    assert (lets_devices_in(first), lets_devices_in(second)) == (True, False)
    async with second.api() as owner:
        pump = await a_pump(first)
        async with pump.online(first) as line:
            done = await owner.post(f"{pump.path}/command", {"cmd": "ON", "waitSeconds": 30})
            assert done["status"] == "DONE"
            assert (await line.next_command("ON"))["id"] == done["executionId"]


async def test_repeated_kills_of_the_leader_neither_lose_nor_repeat_anything(pair: tuple[Service, Service]) -> None:
    """Acknowledged telemetry is stored once; a client that moves from one instance to the other has received exactly the
    log."""
    holder, other = pair
    confirmed: list[int] = []
    seen: list[str] = []
    waits: list[float] = []
    async with contextlib.AsyncExitStack() as stack:
        owner = await stack.enter_async_context(other.api())
        pump = await a_pump(holder)
        async with other.feed(owner) as feed:
            cursor = feed.state["cursor"]
        for turn in range(usual_or_thorough(2, 4)):
            async with other.api() as owner:
                follower = Follower(other, owner, pump, cursor)
                await work(holder, owner, moved(pump, holder), turn, confirmed)
                if turn == 1:
                    holder.stop()
                else:
                    holder.kill()
                waits.append(await taken_over(other))
                async with moved(pump, other).online(other) as line:
                    await line.press_button(turn % 2 == 0)
                    events = await follower.stop(at_least=1)
                    seen += [str(event["eventId"]) for event in events]
                    cursor = str(events[-1]["cursor"])
            holder.start()  # waits beside the other from now on
            holder, other = other, holder
        async with holder.api() as owner:
            last = Follower(holder, owner, pump, cursor)
            before = await the_log(owner, pump)
            seen += [str(event["eventId"]) for event in await last.stop(at_least=len(before) - len(seen))]
            after = await the_log(owner, pump)  # a device that is gone is announced after its grace, in between perhaps
            assert seen == after[: len(seen)]
            assert len(seen) >= len(before)
            stored = await owner.get(f"{pump.path}/telemetry?metric=n&limit=1000")
    numbers = [int(reading["value"]) for reading in stored]
    assert len(numbers) == len(set(numbers))
    assert set(confirmed) <= set(numbers)
    print("seconds until the devices were let in again:", [round(wait, 2) for wait in waits])


async def the_log(owner: ApiClient, pump: Device) -> list[str]:
    shown = ("relay_changed", "device_online", "device_offline")
    log = (await owner.get(f"/events?limit=200&deviceId={pump.device_id}"))["data"]
    return [event["id"] for event in reversed(log) if event["eventType"] in shown]


async def work(holder: Service, owner: ApiClient, pump: Device, turn: int, confirmed: list[int]) -> None:
    """A device that reports, switches and carries out commands until the leader is killed."""
    async with pump.online(holder) as line:
        for number in range(turn * 100, turn * 100 + 30):
            await line.report(n=number)
            confirmed.append(number)
            if number % 10 == 0:
                await line.press_button(number % 20 == 0)
        done = await owner.post(f"{pump.path}/command", {"cmd": "STATUS", "waitSeconds": 30})
        assert done["status"] == "DONE"


class Follower:
    """A client of the feed; the next one resumes where it stops."""

    def __init__(self, service: Service, owner: ApiClient, pump: Device, cursor: str) -> None:
        self._seen: list[dict[str, object]] = []
        query = f"?cursor={cursor}&deviceId={pump.device_id}&types=relay_changed,device_online,device_offline"
        self._following = asyncio.create_task(self._follow(service, owner, query))

    async def _follow(self, service: Service, owner: ApiClient, query: str) -> None:
        async with service.feed(owner, query) as feed:
            with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
                while True:
                    self._seen.append(json.loads(await feed.socket.recv()))

    async def stop(self, *, at_least: int) -> list[dict[str, object]]:
        """What it has received a second after so many events."""
        async with asyncio.timeout(TIMEOUT_S):
            while len(self._seen) < at_least and not self._following.done():
                await asyncio.sleep(0.02)
        await asyncio.sleep(1.0)
        self._following.cancel()
        await self._following
        return self._seen


async def a_rule(owner: ApiClient, pump: Device, line: DeviceConnection) -> None:
    """On a metric that the device has reported, as a rule must be."""
    await line.report(n=1)
    await owner.wait_until(f"{pump.path}/telemetry/latest", lambda answer: answer["telemetry"])
    await owner.post(f"{pump.path}/rules", HOT, expect=201)


async def test_a_paused_leader_is_replaced_and_repeats_no_command_when_it_continues(pair: tuple[Service, Service]) -> None:
    """Nothing ends the paused leader's connection but the standby, which finds its lease expired. Both instances receive the
    reading that makes a rule match; the paused one has it in its socket buffer."""
    first, second = pair
    pump = await a_pump(first)
    async with first.api() as owner, pump.online(first) as line:
        await a_rule(owner, pump, line)
        assert first.process is not None
        os.kill(first.process.pid, signal.SIGSTOP)
        late = asyncio.create_task(line.report(n=2_000))
        await taken_over(second)
        async with second.api() as other, moved(pump, second).online(second) as now:
            await now.report(n=2_000)
            await now.next_command("ON")
            os.kill(first.process.pid, signal.SIGCONT)
            assert await asyncio.to_thread(first.process.wait, TIMEOUT_S) == 1
            page = await other.get(f"{pump.path}/executions?limit=50")
            assert [one["cmd"] for one in page["data"]].count("ON") == 1
        late.cancel()
        await asyncio.wait([late])


async def test_rules_keep_their_state_after_a_leader_change(pair: tuple[Service, Service]) -> None:
    first, second = pair
    pump = await a_pump(first)
    async with first.api() as owner, pump.online(first) as line:
        await a_rule(owner, pump, line)
        await line.report(n=2_000)
        await line.next_command("ON")
        await owner.wait_until(f"{pump.path}/executions", lambda answer: answer["data"][0]["status"] == "DONE")
    first.kill()
    await taken_over(second)
    async with second.api() as owner, moved(pump, second).online(second) as line:
        await line.report(n=3_000)  # still matched: nothing happens
        done = await owner.post(f"{pump.path}/command", {"cmd": "STATUS", "waitSeconds": 30})
        assert done["status"] == "DONE"
        assert (await line.next_command())["cmd"] == "STATUS"
        await line.report(n=1)
        await line.report(n=4_000)
        assert (await line.next_command("ON"))["cmd"] == "ON"
