"""Stock firmware that was offline, with either broker: queued commands arrive in order when it reconnects; expired ones never
do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
import pytest_asyncio

from support.device import Device
from support.firmware import Firmware, Shelly, Tasmota, register_stock_device, run_firmware
from support.mosquitto import mosquitto
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

SECRET = "s" * 32


@asynccontextmanager
async def behind(broker: str, folder: Path) -> AsyncIterator[Service]:
    """The service with its own broker, or with a Mosquitto that it manages and reaches over TLS."""
    if broker == "embedded":
        with Service(folder) as service:
            yield service
        return
    async with mosquitto(folder, "latchboard") as peer:
        settings = {
            "LATCHBOARD_BROKER": f"mqtts://latchboard:{SECRET}@127.0.0.1:{peer.tls_port}",
            "LATCHBOARD_MQTT_PORT": peer.port,
            "LATCHBOARD_MQTT_WS_PORT": peer.ws_port,
            "LATCHBOARD_MOSQUITTO_PASSWORD_FILE": peer.files.password_file,
            "LATCHBOARD_MOSQUITTO_ACL_FILE": peer.files.acl_file,
            "LATCHBOARD_MOSQUITTO_PID_FILE": peer.files.pid_file,
            "SSL_CERT_FILE": folder / "chain.pem",
        }
        service = Service(folder / "service", **settings)
        await asyncio.to_thread(service.start)
        try:
            yield service
        finally:
            service.kill()


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["embedded", "mosquitto"])
async def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with behind(request.param, tmp_path_factory.mktemp(request.param)) as service:
        yield service


@pytest.fixture
async def owner(service: Service) -> AsyncIterator[ApiClient]:
    async with service.api() as api:
        yield api


async def send(owner: ApiClient, device: Device, cmd: str, **more: Any) -> str:
    answer = await owner.post(f"{device.path}/command", {"cmd": cmd, **more})
    assert answer["status"] == "QUEUED", answer
    return str(answer["executionId"])


async def ends(owner: ApiClient, device: Device, execution_id: str, *statuses: str) -> str:
    path = f"{device.path}/executions/{execution_id}"
    return str((await owner.wait_until(path, lambda found: found["status"] in statuses))["status"])


async def power_fails(plug: Firmware) -> None:
    """Close the connection without DISCONNECT, so that its will is published."""
    plug.client._client._sock.shutdown(2)
    with suppress(aiomqtt.MqttError):
        await asyncio.wait_for(asyncio.shield(plug.client._disconnected), TIMEOUT_S)


def switched(plug: Tasmota) -> list[str]:
    return [payload.split(";")[0] for _, payload in plug.received if payload.startswith("Power1")]


async def test_tasmota_is_switched_and_reports_its_state(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "tasmota")
    async with run_firmware(Tasmota, device, service) as plug, service.feed(owner, f"?deviceId={device.device_id}") as feed:
        await owner.wait_until(device.path, lambda found: found["isOnline"] and found["relayState"] is not None)
        done = await owner.post(f"{device.path}/command", {"cmd": "ON", "waitSeconds": 30})
        assert (done["status"], plug.relay) == ("DONE", True)
        assert (await feed.wait_for("relay_changed", relay="ON"))["triggeredBy"] == "user"
        await plug.publish("tele/SENSOR", {"Time": "2026-03-02T06:00:00", "DS18B20": {"Temperature": 21.5}})
        await owner.wait_until(f"{device.path}/telemetry/latest", lambda found: found["telemetry"])
        await power_fails(plug)
    await owner.wait_until(device.path, lambda found: not found["isOnline"])


async def test_commands_queued_for_tasmota_arrive_in_order_and_expired_ones_never(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "tasmota")
    async with run_firmware(Tasmota, device, service) as plug:
        await owner.wait_until(device.path, lambda found: found["isOnline"])
        await power_fails(plug)
    await owner.wait_until(device.path, lambda found: not found["isOnline"])
    late = await send(owner, device, "TOGGLE", ttlSeconds=1)
    kept = [await send(owner, device, cmd) for cmd in ("ON", "OFF", "TOGGLE")]
    assert await ends(owner, device, late, "EXPIRED") == "EXPIRED"
    async with run_firmware(Tasmota, device, service) as plug:
        for execution_id in kept:
            assert await ends(owner, device, execution_id, "DONE") == "DONE"
        assert switched(plug) == ["Power1 ON", "Power1 OFF", "Power1 TOGGLE"]
        assert (plug.relay, await ends(owner, device, late, "EXPIRED")) == (True, "EXPIRED")
    assert not service.error_lines()


async def test_commands_queued_for_shelly_are_sent_by_rpc(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "shelly")
    kept = [await send(owner, device, cmd) for cmd in ("ON", "TOGGLE")]
    async with run_firmware(Shelly, device, service) as plug:
        for execution_id in kept:
            assert await ends(owner, device, execution_id, "DONE") == "DONE"
        assert plug.relay is False
    assert not service.error_lines()
