"""Every transport of a device with the whole service: MQTT 3.1.1 and 5 over TCP, WebSocket and TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiomqtt
import pytest

from support.device import Device, DeviceConnection, create_device
from support.service import ApiClient, Service
from support.transports import TRANSPORTS, connect_options, tls_settings, transport_name
from support.waiting import TIMEOUT_S


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    with Service(folder, LATCHBOARD_INGEST_LIMIT=0, **tls_settings(folder)) as service:
        yield service


@pytest.fixture(params=TRANSPORTS, ids=transport_name)
def way(request: pytest.FixtureRequest, service: Service) -> dict[str, Any]:
    return connect_options(service, request.param)


@pytest.fixture
async def pump(owner: ApiClient) -> Device:
    return await create_device(owner)


async def test_a_device_connects_reports_carries_out_a_command_and_disconnects(
    service: Service, owner: ApiClient, pump: Device, way: Any
) -> None:
    async with service.feed(owner, f"?deviceId={pump.device_id}") as feed:
        async with pump.online(service, **way) as line:
            await feed.wait_for("device_online", reason="connected")
            await line.report(temperature=21.5, mode="eco")
            done = await owner.post(f"{pump.path}/command", {"cmd": "ON", "waitSeconds": 30})
            changed = await feed.wait_for("relay_changed")
        gone = await feed.wait_for("device_offline")

    assert done["status"] == "DONE"
    assert (changed["relay"], changed["triggeredBy"]) == ("ON", "user")
    assert gone["reason"] == "disconnected"
    latest = (await owner.get(f"{pump.path}/telemetry/latest"))["telemetry"]
    assert {each["metric"]: each["valueText"] or each["value"] for each in latest} == {"temperature": 21.5, "mode": "eco"}


async def test_a_command_for_an_offline_device_is_sent_when_it_reconnects(
    service: Service, owner: ApiClient, pump: Device, way: Any
) -> None:
    queued = await owner.post(f"{pump.path}/command", {"cmd": "ON", "ttlSeconds": 600})
    assert queued["status"] == "QUEUED"
    async with pump.online(service, **way) as line:
        assert (await line.next_command("ON"))["id"] == queued["executionId"]
        await owner.wait_until(f"{pump.path}/executions/{queued['executionId']}", lambda each: each["status"] == "DONE")


async def test_the_device_plan_is_retained(service: Service, owner: ApiClient, pump: Device, way: Any) -> None:
    slot = {"slot": 2, "onTs": 4_000_000_000, "offTs": 4_000_000_060}
    await owner.post(f"{pump.path}/schedules", slot, expect=201)
    async with pump.online(service, **way) as line:
        plan = await line.wait_for_plan(lambda each: each["s"])
        await line.publish("sched/rev", {"rev": plan["rev"]}, retain=True)
        await owner.wait_until(f"{pump.path}/schedules", lambda slots: slots[0]["firmwareSynced"])
    assert plan["s"] == [[2, 4_000_000_000, 4_000_000_060, 1]]


async def revoked(owner: ApiClient, pump: Device) -> None:
    await owner.post(f"{pump.path}/revoke")


async def disabled(owner: ApiClient, pump: Device) -> None:
    await owner.patch(f"{pump.path}/toggle")


async def deleted(owner: ApiClient, pump: Device) -> None:
    await owner.delete(pump.path)


async def given_a_new_password(owner: ApiClient, pump: Device) -> None:
    await owner.post(f"{pump.path}/credentials", {"rotate": True})


@pytest.mark.parametrize("cut", [revoked, disabled, deleted, given_a_new_password], ids=lambda cut: cut.__name__)
async def test_the_connection_is_closed_and_refused_when_the_device_is(
    service: Service, owner: ApiClient, pump: Device, way: Any, cut: Any
) -> None:
    async with leaving(pump.online(service, **way)) as line:
        await line.report(temperature=20)
        await cut(owner, pump)
        await line.wait_for_disconnect()

    with pytest.raises(aiomqtt.MqttError):
        async with pump.client(service, **way):
            pass


def leaving(online: AbstractAsyncContextManager[DeviceConnection]) -> AbstractAsyncContextManager[DeviceConnection]:
    """A connection that the service will close; the client does not report that as an error."""
    return _Leaving(online)


class _Leaving(AbstractAsyncContextManager[DeviceConnection]):
    def __init__(self, online: AbstractAsyncContextManager[DeviceConnection]) -> None:
        self._online = online

    async def __aenter__(self) -> DeviceConnection:
        return await self._online.__aenter__()

    async def __aexit__(self, *error: Any) -> bool:
        try:
            await self._online.__aexit__(*error)
        except aiomqtt.MqttError:
            return True
        return False


async def test_an_enabled_device_connects_again(service: Service, owner: ApiClient, pump: Device, way: Any) -> None:
    await owner.patch(f"{pump.path}/toggle")
    await owner.patch(f"{pump.path}/toggle")
    async with pump.online(service, **way) as line:
        assert await line.drain_commands(owner) == []


async def test_the_will_of_a_lost_device_is_published(service: Service, owner: ApiClient, pump: Device, way: Any) -> None:
    will = aiomqtt.Will(pump.topic("status"), b"offline", 1, True)
    online = leaving(pump.online(service, will=will, **way))
    async with service.feed(owner, f"?deviceId={pump.device_id}") as feed, online as line:
        await feed.wait_for("device_online")
        line.client._client._sock_close()  # the cable is pulled
        gone = await feed.wait_for("device_offline")
    assert gone["reason"] == "lost"


async def test_a_client_that_does_not_trust_the_certificate_cannot_connect(service: Service) -> None:
    port = service.settings["LATCHBOARD_MQTT_TLS_PORT"]
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port, ssl=ssl.create_default_context()), TIMEOUT_S)


async def test_old_tls_is_refused(service: Service) -> None:
    port = service.settings["LATCHBOARD_MQTT_TLS_PORT"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    _, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port, ssl=context), TIMEOUT_S)
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
    writer.close()
    await writer.wait_closed()
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port, ssl=context), TIMEOUT_S)
