"""The simulated fleet is made of real clients: it reports, obeys, fails as told, and leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.engine import _native
from adapters.mqtt.embedded import BrokerListenAddress, EmbeddedBrokerSettings, EmbeddedDeviceLink
from domain.devices.link import InboundDeviceConnected, InboundDeviceDisconnected, InboundMessage
from domain.devices.messages import OutboundMessage
from support.broker import BrokerWorld, broker
from support.certificate import certificate
from support.waiting import TIMEOUT_S, until
from support.webhook_receiver import serving


@contextlib.asynccontextmanager
async def fleet(
    world: BrokerWorld, count: int, *, port: int | None = None, **options: Any
) -> AsyncIterator[tuple[Any, list[Any]]]:
    devices = [await world.device(options.get("profile", "native")) for _ in range(count)]
    identities = [(device.device_id, device.password) for device in devices]
    simulation = _native.Simulation("127.0.0.1", port or world.port, identities, **options)
    try:
        yield simulation, devices
    finally:
        await asyncio.to_thread(simulation.stop)


def results(world: BrokerWorld, device: Any) -> list[str]:
    published = [event for event in world.events_of(device) if isinstance(event, InboundMessage) and event.topic == "result"]
    return [json.loads(event.payload)["status"] for event in published]


async def test_a_fleet_reports_and_says_goodbye() -> None:
    async with broker() as world:
        async with fleet(world, 10, rate=200.0) as (simulation, devices):
            await world.wait_until(lambda: world.telemetry >= 50)
            for device in devices:
                await world.wait_for_event(
                    InboundMessage, device_id=device.device_id, topic="status", payload=b"online", retain=True
                )
            stats = simulation.stats()
            assert (stats["connected"], stats["connects"], stats["failed"], stats["lost"]) == (10, 10, 0, 0)
            assert 0 < stats["confirmation_p50_us"] <= stats["confirmation_p99_us"] <= stats["confirmation_max_us"]
        assert simulation.stats()["connected"] == 0
        await world.wait_until(lambda: sum(isinstance(event, InboundDeviceDisconnected) for event in world.events) == 10)


async def test_a_simulated_device_obeys() -> None:
    async with broker() as world, fleet(world, 1, rate=1.0) as (_, [device]):
        await world.wait_for_event(InboundMessage, topic="state")
        for cmd, relay in (("ON", "ON"), ("OFF", "OFF"), ("TOGGLE", "ON")):
            world.events.clear()
            order = json.dumps({"id": f"exe_{cmd}", "cmd": cmd}).encode()
            async with asyncio.timeout(TIMEOUT_S):
                while not await world.link.send(device.device_id, OutboundMessage("cmd", order)):
                    await asyncio.sleep(0.01)
            await world.wait_until(lambda: results(world, device) == ["ack", "done"])
            state = await world.wait_for_event(InboundMessage, topic="state")
            assert json.loads(state.payload)["relay"] == relay


async def test_faults_affect_the_requested_share_of_the_fleet() -> None:
    async with broker() as world, fleet(world, 40, rate=1.0, silent_share=0.5, duplicating_share=0.5) as (simulation, devices):
        await world.wait_until(lambda: simulation.stats()["connected"] == 40)
        order = b'{"id":"exe_1","cmd":"ON"}'
        for device in devices:
            async with asyncio.timeout(TIMEOUT_S):
                while not await world.link.send(device.device_id, OutboundMessage("cmd", order)):
                    await asyncio.sleep(0.01)
        await world.wait_until(lambda: simulation.stats()["commands"] == 40)
        await world.wait_for_stat("inbound_publish", 40 * 3 + simulation.stats()["results"])
        answers = [results(world, device) for device in devices]
        silent = sum(answer == [] for answer in answers)
        twice = sum(answer == ["ack", "done", "done"] for answer in answers)
        assert 10 <= silent <= 30
        assert 0 < twice < 40 - silent


async def test_a_fleet_that_reconnects_comes_back() -> None:
    async with broker() as world, fleet(world, 5, rate=10.0, reconnect_every_s=0.3) as (simulation, _):
        await world.wait_until(lambda: simulation.stats()["connects"] >= 10)


async def test_a_device_that_loses_its_connections_does_not_wait_longer_each_time() -> None:
    """Each was accepted. Only the pauses between failed attempts grow; with those, the sixth loss would come after half a minute."""

    async def accept_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2)
        writer.write(bytes((0x20, 2, 0, 0)))  # CONNACK: accepted
        await writer.drain()

    async with serving(accept_and_close) as address:
        port = int(address.rpartition(":")[2])
        simulation = _native.Simulation("127.0.0.1", port, [("dev_a", "x" * 32)], version=4)
        async with asyncio.timeout(TIMEOUT_S):
            while simulation.stats()["lost"] < 6:
                await asyncio.sleep(0.05)
        await asyncio.to_thread(simulation.stop)


async def test_a_fleet_that_is_refused_counts_it() -> None:
    async with broker() as world:
        simulation = _native.Simulation("127.0.0.1", world.port, [("dev_unknown", "x" * 32)])
        await world.wait_until(lambda: simulation.stats()["refused"] >= 1)
        await asyncio.to_thread(simulation.stop)


async def test_a_fleet_ends_when_its_time_is_over() -> None:
    async with broker() as world, fleet(world, 3, rate=30.0, seconds=0.5) as (simulation, _):
        await world.wait_until(lambda: not simulation.is_running())
        assert simulation.stats()["sent"] > 0


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("websocket", [False, True])
async def test_a_fleet_comes_over_every_transport_and_version(version: int, websocket: bool) -> None:
    async with broker() as world:
        options = {"websocket": websocket, "version": version, "rate": 100.0}
        async with fleet(world, 3, port=world.ports[websocket], **options) as (simulation, [device, *_]):
            await world.wait_until(lambda: world.telemetry >= 20)
            connected = await world.wait_for_event(InboundDeviceConnected, device_id=device.device_id)
            assert connected.protocol == ("ws/" if websocket else "") + ("mqtt/5" if version == 5 else "mqtt/3.1.1")
            order = b'{"id":"exe_1","cmd":"ON"}'
            async with asyncio.timeout(TIMEOUT_S):
                while not await world.link.send(device.device_id, OutboundMessage("cmd", order)):
                    await asyncio.sleep(0.01)
            await world.wait_until(lambda: results(world, device) == ["ack", "done"])
            assert simulation.stats()["lost"] == 0


@pytest.mark.parametrize("transport", ["tcp", "ws"])
async def test_a_fleet_comes_over_tls_to_a_broker_it_trusts_and_to_no_other(transport: Any, tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    (tmp_path / "other").mkdir()
    other, _ = certificate(tmp_path / "other")
    link = EmbeddedDeviceLink(EmbeddedBrokerSettings((BrokerListenAddress(transport, "127.0.0.1", 0, tls=True),), chain, key))
    await link.start()
    world = BrokerWorld(link, list(link.ports()))
    consuming = asyncio.create_task(world.consume())
    try:
        options: Any = {"websocket": transport == "ws", "rate": 100.0}
        async with fleet(world, 2, ca_certificates=other.read_bytes(), **options) as (simulation, _):
            await world.wait_until(lambda: simulation.stats()["failed"] >= 2)
            assert simulation.stats()["connects"] == 0
        async with fleet(world, 2, ca_certificates=chain.read_bytes(), **options):
            await world.wait_until(lambda: world.telemetry >= 10)
    finally:
        consuming.cancel()
        await asyncio.wait([consuming])
        await link.stop()


async def test_a_command_that_came_before_is_not_run_again_and_one_too_late_never() -> None:
    async with broker() as world, fleet(world, 1, rate=1.0) as (simulation, [device]):
        await world.wait_for_event(InboundMessage, topic="state")
        for order in (
            b'{"id":"exe_1","cmd":"TOGGLE"}',
            b'{"id":"exe_1","cmd":"TOGGLE"}',
            b'{"id":"exe_2","cmd":"TOGGLE","exp":1}',
        ):
            async with asyncio.timeout(TIMEOUT_S):
                while not await world.link.send(device.device_id, OutboundMessage("cmd", order)):
                    await asyncio.sleep(0.01)
        await world.wait_until(lambda: results(world, device) == ["ack", "done", "done", "expired"])
        stats = simulation.stats()
        assert (stats["commands"], stats["repeats"], stats["expired"]) == (3, 1, 1)
        reply = [
            event.payload for event in world.events_of(device) if isinstance(event, InboundMessage) and event.topic == "state"
        ]
        assert [json.loads(each)["relay"] for each in reply] == ["OFF", "ON"]


async def test_a_late_device_answers_after_the_deadline_and_across_a_reconnect() -> None:
    async with (
        broker() as world,
        fleet(world, 1, rate=1.0, late_share=1.0, abrupt_disconnect_every_s=0.4) as (simulation, [device]),
    ):
        await world.wait_for_event(InboundMessage, topic="state")

        async def outcome() -> str:
            """An order that comes after its deadline, as on a machine that stood still, is answered otherwise."""
            world.events.clear()
            deadline = int(time.time() * 1000) + 300
            order = json.dumps({"id": f"exe_{deadline}", "cmd": "ON", "exp": deadline}).encode()
            async with asyncio.timeout(TIMEOUT_S):
                while not await world.link.send(device.device_id, OutboundMessage("cmd", order)):
                    await asyncio.sleep(0.01)
            result = await world.wait_for_event(InboundMessage, topic="result")
            [status] = results(world, device)
            assert status == "expired" or result.at_ms > deadline
            return status

        assert await until(outcome, lambda status: status != "expired") == "done"
        assert simulation.stats()["fault_late"] == 1


async def test_a_goodbye_leaves_no_will_and_a_dirty_end_does() -> None:
    async with broker() as world:
        async with fleet(world, 2, rate=1.0, reconnect_every_s=0.3) as (simulation, _):
            await world.wait_until(lambda: simulation.stats()["fault_reconnect"] >= 2)
        assert not [event for event in world.events if isinstance(event, InboundMessage) and event.payload == b"offline"]
        async with fleet(world, 2, rate=1.0, abrupt_disconnect_every_s=0.3):
            await world.wait_for_event(InboundMessage, topic="status", payload=b"offline")


async def test_in_a_storm_all_go_at_once_and_all_come_back() -> None:
    async with broker() as world, fleet(world, 50, rate=50.0) as (simulation, _):
        await world.wait_until(lambda: simulation.stats()["connected"] == 50)
        simulation.reconnect_all()
        await world.wait_until(lambda: simulation.stats()["fault_storm"] == 50)
        await world.wait_until(lambda: simulation.stats()["connected"] == 50)
        assert simulation.stats()["lost"] == 0


async def test_the_journal_holds_what_was_confirmed_and_nothing_else() -> None:
    async with broker(consume=False) as world, fleet(world, 2, rate=200.0, keep_puback_log=True) as (simulation, devices):
        await world.wait_until(lambda: simulation.stats()["sent"] >= 20)
        assert dict(simulation.puback_log()) == {device.device_id: [] for device in devices}
        consuming = asyncio.create_task(world.consume())
        await world.wait_until(lambda: simulation.stats()["confirmed"] >= 20)
        runs = [run for _, [run] in simulation.puback_log()]
        consuming.cancel()
        assert [first for first, _ in runs] == [0, 0]
        assert sum(last + 1 for _, last in runs) <= simulation.stats()["confirmed"]


def test_a_plan_that_makes_no_sense_is_refused() -> None:
    for options in ({"profile": "toaster"}, {"version": 3}, {"seconds": -1.0}):
        with pytest.raises(ValueError, match=r"profile|level|negative"):
            _native.Simulation("127.0.0.1", 1, [], **options)  # type: ignore[arg-type]
    with pytest.raises(OSError, match=r"(?i)pem|invalid|other"):
        _native.Simulation("not a name!", 1, [], ca_certificates=b"")
