"""The simulated fleet is made of real clients: it reports, obeys, fails as told, and leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from adapters.engine import _native
from domain.devices.link import Disconnected, Published
from support.broker import World, broker


@contextlib.asynccontextmanager
async def fleet(world: World, count: int, **options: Any) -> AsyncIterator[tuple[Any, list[Any]]]:
    devices = [await world.device() for _ in range(count)]
    identities = [(device.device_id, device.password) for device in devices]
    simulation = _native.Simulation("127.0.0.1", world.port, identities, **options)
    try:
        yield simulation, devices
    finally:
        await asyncio.to_thread(simulation.stop)


def results(world: World, device: Any) -> list[str]:
    published = [event for event in world.of(device) if isinstance(event, Published) and event.topic == "result"]
    return [json.loads(event.payload)["status"] for event in published]


async def test_a_fleet_reports_and_says_goodbye() -> None:
    async with broker() as world:
        async with fleet(world, 10, rate=200.0) as (simulation, devices):
            await world.until(lambda: world.telemetry >= 50)
            for device in devices:
                await world.event(Published, device_id=device.device_id, topic="status", payload=b"online", retain=True)
            stats = simulation.stats()
            assert (stats["connected"], stats["connects"], stats["failed"], stats["lost"]) == (10, 10, 0, 0)
            assert 0 < stats["confirmation_p50_us"] <= stats["confirmation_p99_us"] <= stats["confirmation_max_us"]
        assert simulation.stats()["connected"] == 0
        await world.until(lambda: sum(isinstance(event, Disconnected) for event in world.events) == 10)


async def test_a_simulated_device_obeys() -> None:
    async with broker() as world, fleet(world, 1, rate=1.0) as (_, [device]):
        await world.event(Published, topic="state")
        for cmd, relay in (("ON", "ON"), ("OFF", "OFF"), ("TOGGLE", "ON")):
            world.events.clear()
            order = json.dumps({"id": "exe_1", "cmd": cmd}).encode()
            async with asyncio.timeout(5):
                while not await world.link.send(device.device_id, "cmd", order):
                    await asyncio.sleep(0.01)
            await world.until(lambda: results(world, device) == ["ack", "done"])
            state = await world.event(Published, topic="state")
            assert json.loads(state.payload)["relay"] == relay


async def test_faults_fall_on_the_share_of_the_fleet_that_was_asked_for() -> None:
    async with broker() as world, fleet(world, 40, rate=1.0, silent=0.5, duplicating=0.5) as (simulation, devices):
        await world.until(lambda: simulation.stats()["connected"] == 40)
        order = b'{"id":"exe_1","cmd":"ON"}'
        for device in devices:
            async with asyncio.timeout(5):
                while not await world.link.send(device.device_id, "cmd", order):
                    await asyncio.sleep(0.01)
        await world.until(lambda: simulation.stats()["commands"] == 40)
        await world.stat("uplink_publish", 40 * 3 + simulation.stats()["results"])
        answers = [results(world, device) for device in devices]
        silent = sum(answer == [] for answer in answers)
        twice = sum(answer == ["ack", "done", "done"] for answer in answers)
        assert 10 <= silent <= 30
        assert 0 < twice < 40 - silent


async def test_a_fleet_that_reconnects_comes_back() -> None:
    async with broker() as world, fleet(world, 5, rate=10.0, reconnect_every_s=0.3) as (simulation, _):
        await world.until(lambda: simulation.stats()["connects"] >= 10)


async def test_a_fleet_that_is_refused_counts_it() -> None:
    async with broker() as world:
        simulation = _native.Simulation("127.0.0.1", world.port, [("dev_unknown", "x" * 32)])
        await world.until(lambda: simulation.stats()["refused"] >= 1)
        await asyncio.to_thread(simulation.stop)


async def test_a_fleet_ends_when_its_time_is_over() -> None:
    async with broker() as world, fleet(world, 3, rate=30.0, seconds=0.5) as (simulation, _):
        await world.until(lambda: not simulation.running())
        assert simulation.stats()["sent"] > 0
