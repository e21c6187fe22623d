"""Redelivery, packet ids and flow control of a session, as MQTT 3.1.1 and MQTT 5 require them of a server."""

from __future__ import annotations

import struct

import pytest

from domain.devices.link import InboundDeviceDisconnected, InboundDeviceSubscribed, PublishResult
from domain.devices.messages import OutboundMessage
from support import mqtt_packets as wire
from support.broker import BrokerDevice, BrokerWorld, RawMqttConnection, broker, connect_packet, subscribe_packet

PING, PONG = b"\xc0\x00", (0xD0, b"")
SESSION_EXPIRY, RECEIVE_MAXIMUM, MAX_PACKET = b"\x11\x00\x00\x00\x3c", b"\x21", b"\x27"


async def resume(world: BrokerWorld, device: BrokerDevice, version: int, *, more: bytes = b"") -> RawMqttConnection:
    """A connection with client id "raw" that keeps its session."""
    packet = connect_packet(device, clean=False)
    if version == 5:
        packet = wire.connect(device.device_id, device.password, clean=False, more=SESSION_EXPIRY + more)
    raw = await world.open(packet)
    head, body = await raw.next_packet()
    assert (head, body[1]) == (wire.CONNACK, 0), body
    raw.resumed = body[0] == 1
    return raw


async def subscribe(raw: RawMqttConnection, device: BrokerDevice, version: int, *, qos: int = 1) -> None:
    packet = subscribe_packet(device.topic("cmd")) if version == 4 else wire.subscribe(device.topic("cmd"))
    await raw.send(packet[:-1] + bytes([qos]))
    assert (await raw.next_packet())[0] == wire.SUBACK


async def published(raw: RawMqttConnection, version: int) -> tuple[bool, int, bytes]:
    """DUP, packet id and payload of the next PUBLISH at QoS 1."""
    head, body = await raw.next_packet()
    assert head & 0xF6 == 0x32, hex(head)
    offset = 2 + struct.unpack(">H", body[:2])[0]
    packet_id = struct.unpack(">H", body[offset : offset + 2])[0]
    payload = body[offset + 2 :]
    return bool(head & 0x08), packet_id, payload[1 + payload[0] :] if version == 5 else payload


def puback(packet_id: int) -> bytes:
    return b"\x40\x02" + struct.pack(">H", packet_id)


async def command(world: BrokerWorld, device: BrokerDevice, payload: bytes) -> None:
    assert await world.link.send(device.device_id, OutboundMessage("cmd", payload)) is PublishResult.SENT


async def lost(world: BrokerWorld, raw: RawMqttConnection) -> None:
    world.events.clear()
    await raw.close()
    await world.wait_for_event(InboundDeviceDisconnected)


@pytest.mark.parametrize("version", [4, 5])
async def test_a_resumed_session_redelivers_with_the_same_packet_id_and_dup(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await resume(world, device, version)
        await subscribe(raw, device, version)
        for payload in (b"first", b"second", b"third"):
            await command(world, device, payload)
        sent = [await published(raw, version) for _ in range(3)]
        assert [dup for dup, _, _ in sent] == [False] * 3
        await raw.send(puback(sent[1][1]))
        await world.wait_for_stat("outbound_acked", 1)
        await lost(world, raw)
        raw = await resume(world, device, version)
        assert raw.resumed
        expected = [(True, packet_id, payload) for _, packet_id, payload in (sent[0], sent[2])]
        assert [await published(raw, version) for _ in range(2)] == expected
        await raw.send(PING)
        assert await raw.next_packet() == PONG, "nothing else is sent"


@pytest.mark.parametrize("version", [4, 5])
async def test_a_redelivery_that_is_lost_again_keeps_its_packet_id(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await resume(world, device, version)
        await subscribe(raw, device, version)
        await command(world, device, b"once")
        _, packet_id, _ = await published(raw, version)
        for _ in range(3):
            await lost(world, raw)
            raw = await resume(world, device, version)
            assert await published(raw, version) == (True, packet_id, b"once")
        await raw.send(puback(packet_id))
        await world.wait_for_stat("outbound_acked", 1)
        await lost(world, raw)
        raw = await resume(world, device, version)
        await raw.send(PING)
        assert await raw.next_packet() == PONG


@pytest.mark.parametrize("version", [4, 5])
async def test_a_takeover_redelivers_as_a_reconnect_does(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await resume(world, device, version)
        await subscribe(raw, device, version)
        await command(world, device, b"once")
        _, packet_id, _ = await published(raw, version)
        assert await published(await resume(world, device, version), version) == (True, packet_id, b"once")


@pytest.mark.parametrize("version", [4, 5])
async def test_a_new_message_never_has_the_packet_id_of_one_in_flight(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await resume(world, device, version)
        await subscribe(raw, device, version)
        await command(world, device, b"unanswered")
        _, first, _ = await published(raw, version)
        await lost(world, raw)
        raw = await resume(world, device, version)
        assert (await published(raw, version))[1] == first
        await command(world, device, b"new")
        dup, packet_id, payload = await published(raw, version)
        assert (dup, payload) == (False, b"new")
        assert packet_id != first


async def test_a_redelivery_respects_the_receive_maximum_of_the_new_connection() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await resume(world, device, 5)
        await subscribe(raw, device, 5)
        for number in range(3):
            await command(world, device, b"%d" % number)
        sent = [await published(raw, 5) for _ in range(3)]
        await command(world, device, b"3")
        await lost(world, raw)
        raw = await resume(world, device, 5, more=RECEIVE_MAXIMUM + b"\x00\x01")
        for _, packet_id, payload in sent:
            assert await published(raw, 5) == (True, packet_id, payload)
            await raw.send(PING)
            assert await raw.next_packet() == PONG, "one at a time"
            await raw.send(puback(packet_id))
        _, _, payload = await published(raw, 5)
        assert payload == b"3"


@pytest.mark.parametrize("version", [4, 5])
async def test_a_resumed_session_keeps_its_subscriptions_and_says_what_it_redelivers(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await resume(world, device, version)
        await subscribe(raw, device, version)
        first = await world.wait_for_event(InboundDeviceSubscribed, topic_filter="cmd")
        assert first.held_until_ms == 0, "a new subscription"
        await lost(world, raw)
        gone = await world.wait_for_event(InboundDeviceDisconnected)
        raw = await resume(world, device, version)
        again = await world.wait_for_event(InboundDeviceSubscribed, topic_filter="cmd")
        assert first.at_ms < again.at_ms
        assert gone.at_ms <= again.held_until_ms <= again.at_ms
        await command(world, device, b"x")
        assert (await published(raw, version))[2] == b"x"


async def test_a_subscription_at_qos_0_holds_nothing_for_a_later_connection() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await resume(world, device, 4)
        await subscribe(raw, device, 4, qos=0)
        await lost(world, raw)
        await resume(world, device, 4)
        assert (await world.wait_for_event(InboundDeviceSubscribed, topic_filter="cmd")).held_until_ms == 0


@pytest.mark.parametrize("limit", [128, 129, 130, 131, 256, 16_386, 16_387])
async def test_a_client_gets_no_packet_above_its_maximum_and_the_service_learns_it(limit: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await resume(world, device, 5, more=MAX_PACKET + struct.pack(">I", limit))
        await subscribe(raw, device, 5)
        beside = 2 + len(device.topic("cmd")) + 2 + 1
        length_bytes = 1 if limit <= 130 else 2 if limit <= 16_387 else 3
        content = min(limit - 1 - length_bytes, {1: 127, 2: 16_383}[length_bytes])
        largest = OutboundMessage("cmd", b"x" * (content - beside))
        assert await world.link.send(device.device_id, largest) is PublishResult.SENT
        too_large = OutboundMessage("cmd", largest.payload + b"x")
        assert await world.link.send(device.device_id, too_large) is PublishResult.TOO_LARGE
        with_expiry = OutboundMessage("cmd", largest.payload, expiry_s=60)
        assert await world.link.send(device.device_id, with_expiry) is PublishResult.TOO_LARGE
        assert (await published(raw, 5))[2] == largest.payload
        await raw.send(PING)
        assert await raw.next_packet() == PONG


async def test_a_resumed_session_that_accepts_less_than_it_holds_is_announced_as_new() -> None:
    """So the service sends its unanswered commands again, and learns which are too large."""
    async with broker() as world:
        device = await world.device()
        raw = await resume(world, device, 5)
        await subscribe(raw, device, 5)
        await command(world, device, b"x" * 500)
        await published(raw, 5)
        await lost(world, raw)
        await resume(world, device, 5, more=MAX_PACKET + struct.pack(">I", 128))
        assert (await world.wait_for_event(InboundDeviceSubscribed, topic_filter="cmd")).held_until_ms == 0
        assert await world.link.send(device.device_id, OutboundMessage("cmd", b"x" * 500)) is PublishResult.TOO_LARGE
