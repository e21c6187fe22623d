"""A QoS-1 message is confirmed when its batch is, never before; whatever was not confirmed comes again."""

from __future__ import annotations

import asyncio

import aiomqtt
import pytest

from domain.devices.link import InboundDeviceDisconnected, InboundMessage
from domain.kernel.errors import Unavailable
from support.broker import broker, publish_packet
from support.waiting import TIMEOUT_S

PING, PONG = b"\xc0\x00", (0xD0, b"")


async def everything(world, count: int) -> list:
    """Batches, not acknowledged, until `count` messages have come."""
    batches, seen = [], 0
    while seen < count:
        async with asyncio.timeout(TIMEOUT_S):
            batch = await world.link.receive(500)
        batches.append(batch)
        seen += len(batch.telemetry) + sum(isinstance(event, InboundMessage) for event in batch.events)
    return batches


async def test_nothing_is_confirmed_before_its_batch_is() -> None:
    async with broker(consume=False) as world:
        device = await world.device()
        raw = await world.login(device)
        await raw.send(publish_packet(device.topic("telemetry"), b'{"t":1}', qos=1, packet_id=5))
        await raw.send(publish_packet(device.topic("state"), b"ON", qos=1, packet_id=6))
        batches = await everything(world, 2)
        await raw.send(PING)
        assert await raw.next_packet() == PONG, "the ping overtakes both confirmations"
        for batch in batches:
            batch.ack()
        assert await raw.next_packet() == (0x40, b"\x00\x05")
        assert await raw.next_packet() == (0x40, b"\x00\x06")


async def test_a_batch_that_is_given_up_cuts_those_who_wait_for_it_and_only_those() -> None:
    async with broker(consume=False) as world:
        device, other = await world.device(), await world.device()
        raw, bystander = await world.login(device), await world.login(other)
        await raw.send(publish_packet(device.topic("state"), b"ON", qos=1))
        await bystander.send(publish_packet(other.topic("telemetry"), b"{}"))
        for batch in await everything(world, 2):
            batch.nack()
            batch.ack()
        assert await raw.wait_closed()
        await bystander.send(PING)
        assert await bystander.next_packet() == PONG


async def test_a_batch_that_is_forgotten_is_given_up() -> None:
    async with broker(consume=False) as world:
        device = await world.device()
        raw = await world.login(device)
        await raw.send(publish_packet(device.topic("state"), b"ON", qos=1))
        batches = await everything(world, 1)
        batches.clear()
        assert await raw.wait_closed()


@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5])
async def test_a_real_client_sends_again_what_was_not_confirmed(version) -> None:
    """As after a kill: the batch was taken and never became durable."""
    async with broker(consume=False) as world:
        device = await world.device()
        async with world.client(device, protocol=version) as client:
            paho = client._client
            sent = asyncio.create_task(client.publish(device.topic("result"), b"done", qos=1, timeout=TIMEOUT_S))
            for batch in await everything(world, 1):
                batch.nack()
            await asyncio.wait([client._disconnected], timeout=TIMEOUT_S)
            assert client._disconnected.exception() is not None
            paho.reconnect()
            again = await everything(world, 1)
            assert not sent.done()
            for batch in again:
                batch.ack()
            await asyncio.wait_for(sent, TIMEOUT_S)
        stats = world.link.stats()
        assert (stats["inbound_publish"], stats["inbound_duplicates"]) == (2, 1)


async def test_events_of_a_device_come_in_the_order_in_which_it_sent_them() -> None:
    async with broker(rate_per_second=0) as world:
        device = await world.device()
        raw = await world.login(device)
        for number in range(1, 301):
            below = "state" if number % 2 else "result"
            await raw.send(publish_packet(device.topic(below), b"%d" % number, qos=number % 2, packet_id=number))
        await raw.send(b"\xe0\x00")
        await world.wait_for_event(InboundDeviceDisconnected, reason="disconnected")
        assert [event.payload for event in world.events if isinstance(event, InboundMessage)] == [
            b"%d" % number for number in range(1, 301)
        ]


async def test_confirmations_keep_their_order_whatever_order_batches_are_confirmed_in() -> None:
    async with broker(consume=False) as world:
        device = await world.device()
        raw = await world.login(device)
        batches = []
        for number in (1, 2):
            await raw.send(publish_packet(device.topic("state"), b"ON", qos=1, packet_id=number))
            batches += await everything(world, 1)
        for batch in reversed(batches):
            batch.ack()
        assert [await raw.next_packet() for _ in (1, 2)] == [(0x40, b"\x00\x01"), (0x40, b"\x00\x02")]


async def test_a_take_that_waits_ends_with_the_link() -> None:
    async with broker(consume=False) as world:
        waiting = asyncio.create_task(world.link.receive(10))
        await asyncio.sleep(0)
        await world.link.stop()
        with pytest.raises(Unavailable):
            await asyncio.wait_for(waiting, TIMEOUT_S)


async def test_what_was_queued_at_the_stop_can_still_be_taken() -> None:
    async with broker(consume=False) as world:
        device = await world.device()
        raw = await world.login(device)
        await raw.send(publish_packet(device.topic("telemetry"), b"{}"))
        await world.wait_for_stat("inbound_telemetry", 1)
        await world.link.stop()
        batch = await world.link.receive(100)
        assert len(batch.telemetry) == 1
        assert [type(event).__name__ for event in batch.events] == ["InboundDeviceConnected", "InboundDeviceDisconnected"]
        assert batch.events[-1].reason == "stopped"
