"""What every implementation of the link's ports holds about batches and connections, and what those without devices say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiomqtt
import pytest

from adapters.mqtt.embedded import BrokerListenAddress, EmbeddedBrokerSettings, EmbeddedDeviceLink
from adapters.mqtt.links import LeaderOnlyDeviceLink, NullDeviceLink
from domain.devices.link import (
    TAKEN_OVER,
    DeviceBrokerLink,
    InboundDeviceConnected,
    InboundDeviceDisconnected,
    InboundMessage,
    PublishResult,
)
from domain.devices.messages import OutboundMessage
from domain.kernel.errors import Unavailable
from support.link_world import World, consuming, open_world
from support.waiting import TIMEOUT_S


@pytest.fixture(params=["embedded", "mosquitto"])
async def world(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[World]:
    async with open_world(request.param, tmp_path) as world:
        yield world


async def test_telemetry_and_events_of_a_batch_are_acknowledged_apart(world: World) -> None:
    device = await world.device()
    async with world.client(device) as client, asyncio.timeout(TIMEOUT_S):
        sending = [asyncio.create_task(client.publish(device.topic(topic), b"{}", qos=1)) for topic in ("state", "telemetry")]
        batches: list[Any] = []
        while not (
            any(len(batch.telemetry) for batch in batches)
            and any(isinstance(event, InboundMessage) for batch in batches for event in batch.events)
        ):
            batches.append(await world.link.receive(100))
        acked = [world.link.stats()["inbound_acked"]]
        for acknowledge in ("ack_events", "ack_telemetry", "ack_telemetry", "ack", "nack"):
            for batch in batches:
                getattr(batch, acknowledge)()
            acked.append(world.link.stats()["inbound_acked"])
        assert acked == [0, 1, 2, 2, 2, 2]
        await asyncio.gather(*sending)


async def test_a_connection_that_another_instance_has_taken_over_is_closed_and_says_so() -> None:
    link = EmbeddedDeviceLink(EmbeddedBrokerSettings((BrokerListenAddress("tcp", "127.0.0.1", 0),)), front="front-a")
    await link.start()
    world = World(link, *link.ports(), 0)
    async with consuming(world):
        device = await world.device()
        sessions = [0]
        for _ in range(2):
            world.events.clear()
            with pytest.raises(aiomqtt.MqttError):
                async with world.client(device, protocol=aiomqtt.ProtocolVersion.V5) as client:
                    await client.subscribe(device.topic("cmd"))
                    opened = await world.event(InboundDeviceConnected)
                    assert link.disconnect(device.device_id)
                    closed = await world.event(InboundDeviceDisconnected, reason=TAKEN_OVER)
                    await asyncio.wait_for(anext(aiter(client.messages)), TIMEOUT_S)
            assert (opened.front, closed.front, opened.session) == ("front-a", "front-a", closed.session)
            sessions.append(opened.session)
        assert sorted(set(sessions)) == sessions
        assert not link.disconnect(device.device_id)
    await link.stop()


@pytest.mark.parametrize("make", [NullDeviceLink, lambda: LeaderOnlyDeviceLink(NullDeviceLink())], ids=["null", "standby"])
async def test_a_link_without_devices_reaches_none_and_accepts_none(make: Callable[[], DeviceBrokerLink]) -> None:
    link = make()
    await link.start()
    await link.upsert_credentials("dev_1", 1, "p" * 32, "native")
    await link.remove_device("dev_1")
    assert await link.send("dev_1", OutboundMessage("cmd", b"x")) is PublishResult.NOT_SENT
    assert (link.is_connected("dev_1"), link.disconnect("dev_1"), link.last_subscribed_ms("dev_1")) == (False, False, 0)
    assert (link.warning(), dict(link.stats())) == (None, {})
    if isinstance(link, LeaderOnlyDeviceLink):
        link.activate()
    await link.stop()
    with pytest.raises(Unavailable):
        await link.receive(1)
