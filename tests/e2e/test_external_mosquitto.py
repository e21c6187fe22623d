"""The service behind a Mosquitto that is set up as `latchboard broker-config mosquitto` writes it: what Mosquitto has acknowledged is
stored, also after the service or Mosquitto was away; and the service tells when Mosquitto is set up otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from adapters.engine import _native
from support.command_line import run_command
from support.device import Device, create_device
from support.external_broker import ExternalBroker
from support.mosquitto import require_mosquitto
from support.service import ApiClient, Service, environment
from support.startup_code import write_startup_code
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S

BLIND_ONCE_CONNECTED = """
from adapters.mqtt import sockets
watch_writes = sockets.watch_writes
def watch_until_connected(client, sock):
    if not client._connected.done():
        watch_writes(client, sock)
sockets.watch_writes = watch_until_connected
"""
MESSAGES = 3_000
"""Three times what Mosquitto queues by default."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ExternalBroker]:
    require_mosquitto()
    broker = ExternalBroker(tmp_path / "mosquitto")
    yield broker
    broker.remove()


async def publish_numbered(service: Service, device: Device, count: int) -> set[int]:
    """At least so many readings, each with its PUBACK; their numbers."""
    login = [(device.device_id, device.credentials["mqttPassword"])]
    fleet = _native.Simulation("127.0.0.1", service.mqtt_port, login, rate=0, keep_puback_log=True, version=5)
    async with asyncio.timeout(TIMEOUT_S):
        while fleet.stats()["confirmed"] < count:
            await asyncio.sleep(0.02)
    await asyncio.to_thread(fleet.stop)
    [(_, runs)] = fleet.puback_log()
    return {number for first, last in runs for number in range(first, last + 1)}


async def wait_until_stored(owner: ApiClient, device: Device, numbers: set[int]) -> None:
    missing = numbers
    async with asyncio.timeout(TIMEOUT_S):
        while missing:
            answer = await owner.send("GET", f"{device.path}/telemetry/export?format=csv&metric=seq")
            missing = numbers - {int(float(row.split(",")[1])) for row in answer.text.splitlines()[1:]}
            await asyncio.sleep(0.2)


async def readiness(service: Service) -> httpx.Response | None:
    """None while it does not listen."""
    async with httpx.AsyncClient(timeout=OPERATION_TIMEOUT_S) as client:
        with contextlib.suppress(httpx.TransportError):
            return await client.get(f"{service.url}/readyz")
    return None


async def broker_warning(service: Service) -> str | None:
    async with httpx.AsyncClient(timeout=OPERATION_TIMEOUT_S) as client:
        answer = (await client.get(f"{service.url}/readyz")).json()
    return answer.get("warnings", {}).get("broker")


def doctor(service: Service) -> str:
    done = run_command("doctor", folder=service.folder, env=environment(**service.settings))
    return " ".join(done.stdout.split())


async def test_messages_acknowledged_while_the_service_is_dead_and_over_a_restart_of_mosquitto_are_stored(
    tmp_path: Path, broker: ExternalBroker
) -> None:
    with Service(tmp_path, LATCHBOARD_INGEST_LIMIT=0, **broker.settings) as service:
        async with service.api() as owner:
            meter = await create_device(owner, "Meter")
            service.kill()
            acknowledged = await publish_numbered(service, meter, MESSAGES)
            await asyncio.to_thread(broker.end, signal.SIGTERM)
            await asyncio.to_thread(broker.start)
            await asyncio.to_thread(service.start)
            await wait_until_stored(owner, meter, acknowledged)
        assert await broker_warning(service) is None
        assert "Mosquitto may lose" not in doctor(service)


async def test_a_service_starts_without_its_mosquitto_says_so_and_reads_from_it_later(
    tmp_path: Path, broker: ExternalBroker
) -> None:
    await asyncio.to_thread(broker.end, signal.SIGTERM)
    service = Service(tmp_path, **broker.settings)
    starting = asyncio.create_task(asyncio.to_thread(service.__enter__))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while (answer := await readiness(service)) is None:
                await asyncio.sleep(0.05)
        assert answer.status_code == 503
        assert f"127.0.0.1:{broker.port}" in answer.json()["troubles"]["broker"]
        await service.wait_for_log("goes on trying")
        await asyncio.to_thread(broker.start)
        await starting
        async with service.api() as owner:
            meter = await create_device(owner, "Meter")
            async with meter.online(service) as line:
                await line.publish("telemetry", json.dumps({"m": {"seq": 1}}).encode())
                await wait_until_stored(owner, meter, {1})
    finally:
        if service.is_running:
            service.__exit__(None, None, None)
        await asyncio.gather(starting, return_exceptions=True)


async def test_a_mosquitto_with_a_short_queue_is_told_by_readyz_and_doctor(tmp_path: Path) -> None:
    require_mosquitto()
    broker = ExternalBroker(tmp_path / "mosquitto", change={"max_queued_messages": "100", "sys_interval": "1"})
    try:
        with Service(tmp_path, LATCHBOARD_INGEST_LIMIT=0, **broker.settings) as service:
            named = "max_queued_messages is 100, set it to 0"
            assert named in (await broker_warning(service) or "")
            assert named in doctor(service)
            async with service.api() as owner:
                meter = await create_device(owner, "Meter")
            service.kill()
            await publish_numbered(service, meter, MESSAGES)
            service.start()
            async with asyncio.timeout(TIMEOUT_S):
                while "messages since it started" not in (await broker_warning(service) or ""):
                    await asyncio.sleep(0.1)
    finally:
        broker.remove()


async def test_a_connection_whose_socket_the_event_loop_lost_sight_of_goes_on(tmp_path: Path, broker: ExternalBroker) -> None:
    """uvloop may refuse to watch a new socket for writing; the link must not be deaf until its keep alive ends."""
    write_startup_code(tmp_path / "blind", BLIND_ONCE_CONNECTED)
    with Service(tmp_path, tmp_path / "blind", **broker.settings) as service:
        async with service.api() as owner:
            meter = await create_device(owner, "Meter")
            async with meter.online(service) as line:
                await line.publish("telemetry", json.dumps({"m": {"seq": 1}}).encode())
                await wait_until_stored(owner, meter, {1})
                done = await owner.post(f"{meter.path}/command", {"cmd": "ON", "waitSeconds": 30})
                assert done["status"] == "DONE"
