"""What every device link holds, whatever broker is behind it: one suite, two implementations, real MQTT clients."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from adapters.engine import _native
from adapters.mqtt.external import MosquittoDeviceLink
from adapters.mqtt.external_connection import MosquittoConnectionSettings
from adapters.mqtt.mosquitto import MosquittoCredentialStore
from domain.devices.link import InboundDeviceConnected, InboundDeviceDisconnected, InboundDeviceSubscribed, InboundMessage
from domain.devices.messages import OutboundMessage
from domain.kernel.errors import Unavailable
from support.broker import BrokerDevice, new_device
from support.external_broker import ExternalBroker
from support.link_world import StillClock, World, consuming, open_world, received
from support.mosquitto import require_mosquitto
from support.waiting import TIMEOUT_S

V311, V5 = aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5


@pytest.fixture(params=["embedded", "mosquitto"])
async def silent_world(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[World]:
    """Nobody takes what comes up."""
    async with open_world(request.param, tmp_path) as world:
        yield world


@pytest.fixture
async def world(silent_world: World) -> AsyncIterator[World]:
    async with consuming(silent_world):
        yield silent_world


@pytest.mark.parametrize("options", [{"protocol": V311}, {"protocol": V5}, {"transport": "websockets"}])
async def test_a_device_comes_in_reports_and_leaves(world: World, options: dict[str, Any]) -> None:
    device = await world.device()
    port = world.ws_port if "transport" in options else world.port
    async with world.present(device, "cmd", port=port, **options) as client:
        assert (await world.event(InboundDeviceConnected, device_id=device.device_id)).device_no == device.number
        await world.event(InboundDeviceSubscribed, device_id=device.device_id)
        for qos in (0, 1):
            await client.publish(device.topic("telemetry"), b'{"temperature":21.5}', qos=qos)
        await client.publish(device.topic("state"), b'{"relay":"ON"}', qos=1, retain=True)
        await world.until(lambda: world.telemetry == 2)
        state = await world.event(InboundMessage, topic="state")
        assert (state.device_no, state.payload, state.qos, state.retain) == (device.number, b'{"relay":"ON"}', 1, True)
        await client.publish(device.topic("status"), b"offline", qos=1, retain=True)
    await world.event(InboundDeviceDisconnected, device_id=device.device_id)
    assert not world.link.is_connected(device.device_id)


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_wrong_password_is_refused(world: World, version: Any) -> None:
    device = await world.device()
    for fault in ({"password": "0" * 32}, {"username": new_device().device_id}, {"username": None, "password": None}):
        credentials = {"username": device.device_id, "password": device.password, **fault}
        with pytest.raises(aiomqtt.MqttError):
            async with aiomqtt.Client("127.0.0.1", world.port, protocol=version, **credentials):
                pass


async def test_a_lost_device_speaks_its_will_and_is_gone(world: World) -> None:
    device = await world.device()
    async with world.present(device) as client:
        client._client._sock.shutdown(2)
        await world.event(InboundMessage, topic="status", payload=b"offline")
        await world.event(InboundDeviceDisconnected, device_id=device.device_id, reason="lost")
        assert not world.link.is_connected(device.device_id)
        with contextlib.suppress(aiomqtt.MqttError):
            await client._disconnected


async def test_a_forbidden_publish_is_never_received(world: World) -> None:
    device, other = await world.device(), await world.device()
    async with world.present(other, "#") as listener, world.present(device) as client:
        await world.event(InboundMessage, device_id=device.device_id, topic="status")
        await world.event(InboundMessage, device_id=other.device_id, topic="status")
        before = len(world.events)
        while len(listener.messages):
            await received(listener)
        for topic in (other.topic("state"), other.topic("cmd"), device.topic("cmd"), device.topic("sched"), "state"):
            await client.publish(topic, b"evil", qos=1)
        await client.publish(device.topic("result"), b"fine", qos=1)
        await world.event(InboundMessage, topic="result")
        assert [event.payload for event in world.events[before:] if isinstance(event, InboundMessage)] == [b"fine"]
        assert len(listener.messages) == 0


async def test_a_device_hears_nothing_of_others(world: World) -> None:
    device, other = await world.device(), await world.device()
    async with world.present(other, "cmd") as client, world.client(device) as spy:
        for topic_filter in ("#", "devices/#", "devices/+/cmd", other.topic("cmd"), "$SYS/#"):
            with contextlib.suppress(aiomqtt.MqttError):
                await spy.subscribe(topic_filter, qos=1)
        await spy.subscribe(device.topic("#"), qos=1)
        assert await world.link.send(other.device_id, OutboundMessage("cmd", b"secret"))
        assert (await received(client)).payload == b"secret"
        await world.link.send(device.device_id, OutboundMessage("sched", b"own", retain=True))
        assert (await received(spy)).payload == b"own"
        assert len(spy.messages) == 0


async def test_a_command_is_received_or_reported_as_not_sent(world: World) -> None:
    device = await world.device()
    assert not await world.link.send(device.device_id, OutboundMessage("cmd", b"too early"))
    async with world.present(device) as client:
        assert not await world.link.send(device.device_id, OutboundMessage("cmd", b"not subscribed"))
        await client.subscribe(device.topic("cmd"), qos=1)
        assert await world.link.send(device.device_id, OutboundMessage("cmd", b"now", expiry_s=30))
        assert (await received(client)).payload == b"now"


async def test_a_command_carries_its_expiry(world: World) -> None:
    device = await world.device()
    async with world.present(device, "cmd", protocol=V5) as client:
        assert await world.link.send(device.device_id, OutboundMessage("cmd", b"x", expiry_s=30))
        properties = (await received(client)).properties
        assert properties is not None
        assert 28 <= properties.MessageExpiryInterval <= 30


async def test_a_retained_message_waits_for_the_device_until_it_is_cleared(world: World) -> None:
    device = await world.device()
    await world.link.send(device.device_id, OutboundMessage("sched", b'{"rev":1}', retain=True))
    async with world.client(device) as client:
        await client.subscribe(device.topic("sched"), qos=1)
        message = await received(client)
        assert (message.payload, message.retain) == (b'{"rev":1}', True)
    await world.link.send(device.device_id, OutboundMessage("sched", b"", retain=True))
    async with world.client(device) as client:
        await client.subscribe(device.topic("sched"), qos=1)
        await world.link.send(device.device_id, OutboundMessage("sched", b'{"rev":2}', retain=True))
        assert (await received(client)).payload == b'{"rev":2}'


async def test_an_expelled_device_is_cut_and_refused(world: World) -> None:
    device, other = await world.device(), await world.device()
    async with world.present(other, "cmd") as bystander:
        with contextlib.suppress(aiomqtt.MqttError):
            async with world.present(device) as client:
                await world.link.send(device.device_id, OutboundMessage("sched", b'{"rev":1}', retain=True))
                async with asyncio.timeout(TIMEOUT_S):
                    await world.link.remove_device(device.device_id)
                    with contextlib.suppress(aiomqtt.MqttError):
                        await client._disconnected
        await world.event(InboundDeviceDisconnected, device_id=device.device_id, reason="revoked")
        assert not world.link.is_connected(device.device_id)
        with pytest.raises(aiomqtt.MqttError):
            async with world.client(device):
                pass
        assert not await world.link.send(device.device_id, OutboundMessage("cmd", b"x"))
        assert await world.link.send(other.device_id, OutboundMessage("cmd", b"still there"))
        assert (await received(bystander)).payload == b"still there"
        await world.link.upsert_credentials(device.device_id, device.number, device.password, "native")
        async with world.client(device) as again:
            await again.subscribe(device.topic("#"), qos=1)
            await world.link.send(device.device_id, OutboundMessage("time", b"first", retain=True))
            assert (await received(again)).payload == b"first", "what was retained for it is forgotten"


async def test_a_new_password_replaces_the_old_one(world: World) -> None:
    device = await world.device()
    await world.link.upsert_credentials(device.device_id, device.number, "n" * 32, "native")
    with pytest.raises(aiomqtt.MqttError):
        async with world.client(device):
            pass
    device.password = "n" * 32
    async with world.client(device):
        pass


async def test_a_batch_that_is_given_up_comes_again(silent_world: World) -> None:
    world, link = silent_world, silent_world.link
    device = await world.device()

    async def telemetry() -> Any:
        while True:
            batch = await asyncio.wait_for(link.receive(100), TIMEOUT_S)
            if len(batch.telemetry):
                return batch
            batch.ack()

    sending = asyncio.create_task(_stubborn(world, device))
    (await telemetry()).nack()
    (await telemetry()).ack()
    await asyncio.wait_for(sending, TIMEOUT_S)


async def _stubborn(world: World, device: BrokerDevice) -> None:
    """Publishes at QoS 1 and, like every firmware, tries again on a new connection until it is confirmed."""
    while True:
        with contextlib.suppress(aiomqtt.MqttError):
            async with world.client(device) as client:
                async with asyncio.timeout(TIMEOUT_S):
                    sent = asyncio.create_task(client.publish(device.topic("telemetry"), b"{}", qos=1))
                    await asyncio.wait([sent, client._disconnected], return_when=asyncio.FIRST_COMPLETED)
                if sent.done() and sent.exception() is None:
                    return
                sent.cancel()


async def test_taking_from_a_stopped_link_says_so(silent_world: World) -> None:
    waiting = asyncio.create_task(silent_world.link.receive(1))
    await asyncio.sleep(0)
    async with asyncio.timeout(TIMEOUT_S):
        await silent_world.link.stop()
        with pytest.raises(Unavailable):
            await waiting


async def test_a_link_without_its_broker_names_the_address_until_the_broker_answers(tmp_path: Path) -> None:
    require_mosquitto()
    broker = ExternalBroker(tmp_path / "mosquitto")
    await asyncio.to_thread(broker.end, signal.SIGTERM)
    settings = MosquittoConnectionSettings("127.0.0.1", broker.port, "latchboard", "p" * 32)
    store = MosquittoCredentialStore(broker.files, settings.username, settings.password)
    link = MosquittoDeviceLink(settings, StillClock(), _native.RawTelemetryBatch, store)
    try:
        await link.start()
        assert f"127.0.0.1:{broker.port}" in (link.connection_problem() or "")
        await asyncio.to_thread(broker.start)
        async with asyncio.timeout(TIMEOUT_S):
            while link.connection_problem() is not None:
                await asyncio.sleep(0.02)
    finally:
        await link.stop()
        broker.remove()
