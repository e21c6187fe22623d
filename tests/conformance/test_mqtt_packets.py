"""PUBLISH, SUBSCRIBE, UNSUBSCRIBE and PINGREQ, as MQTT 3.1.1 and MQTT 5 require them of a server."""

from __future__ import annotations

import pytest

from domain.devices.link import InboundMessage
from domain.devices.messages import OutboundMessage
from support import mqtt_packets as wire
from support.broker import BrokerDevice, BrokerWorld, RawMqttConnection, broker, publish_packet, subscribe_packet

PING, PONG = b"\xc0\x00", (0xD0, b"")
PUBACK, PUBCOMP, UNSUBACK = 0x40, 0x70, 0xB0


async def login(world: BrokerWorld, device: BrokerDevice, version: int) -> RawMqttConnection:
    if version == 4:
        return await world.login(device)
    raw = await world.open(wire.connect(device.device_id, device.password))
    assert (await raw.next_packet())[1][1] == 0
    return raw


def publish(version: int, topic: str | bytes, *, qos: int, packet_id: int = 1) -> bytes:
    if version == 4:
        raw = topic.decode("latin-1") if isinstance(topic, bytes) else topic
        return publish_packet(raw, b"x", qos=qos, packet_id=packet_id)
    return wire.publish(topic, b"x", qos=qos, packet_id=packet_id)


async def refuses(raw: RawMqttConnection, version: int, code: int) -> bool:
    """Whether the broker closes the connection; in MQTT 5 with this reason code."""
    if version == 5:
        head, body = await raw.next_packet()
        assert (head, body[0]) == (wire.DISCONNECT, code)
        return await raw.wait_closed()
    return await raw.reader.read() == b""


@pytest.mark.parametrize("version", [4, 5])
async def test_a_qos_2_publish_closes_the_connection_and_is_not_stored(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await login(world, device, version)
        await raw.send(publish(version, device.topic("state"), qos=2))
        assert await refuses(raw, version, 0x9B)
        assert not any(isinstance(event, InboundMessage) for event in world.events)


@pytest.mark.parametrize("version", [4, 5])
async def test_an_oversize_qos_2_publish_closes_the_connection_too(version: int) -> None:
    async with broker(max_payload=100) as world:
        device = await world.device()
        raw = await login(world, device, version)
        head = publish(version, device.topic("state"), qos=2)
        await raw.send(bytes([head[0]]) + b"\xff\xff\x03" + head[2:] + bytes(100))
        assert await refuses(raw, version, 0x9B)


@pytest.mark.parametrize("version", [4, 5])
async def test_a_pubrel_is_answered_so_that_a_client_can_end_an_exchange_it_remembers(version: int) -> None:
    async with broker() as world:
        raw = await login(world, await world.device(), version)
        await raw.send(b"\x62\x02\x00\x09")
        head, body = await raw.next_packet()
        assert (head, body[:2]) == (PUBCOMP, b"\x00\x09")
        assert version == 4 or body[2] == 0x92


@pytest.mark.parametrize("version", [4, 5])
async def test_qos_3_closes_the_connection(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await login(world, device, version)
        await raw.send(bytes([0x36]) + publish(version, device.topic("state"), qos=1)[1:])
        assert await raw.wait_closed()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("topic", ["devices/+/state", "#", "devices/x/\0"])
async def test_a_topic_name_with_a_wildcard_or_a_null_character_closes_the_connection(version: int, topic: str) -> None:
    async with broker() as world:
        raw = await login(world, await world.device(), version)
        await raw.send(publish(version, topic, qos=1))
        assert await refuses(raw, version, 0x90)


@pytest.mark.parametrize("version", [4, 5])
async def test_packet_id_0_closes_the_connection(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await login(world, device, version)
        await raw.send(publish(version, device.topic("state"), qos=1, packet_id=0))
        assert await raw.wait_closed()


async def test_a_topic_that_is_not_utf_8_closes_the_connection() -> None:
    async with broker() as world:
        device = await world.device()
        for packet in (wire.publish(b"devices/\xff", qos=0), wire.publish(b"\xed\xa0\x80", qos=0)):
            raw = await login(world, device, 5)
            await raw.send(packet)
            assert await raw.wait_closed()


@pytest.mark.parametrize("version", [4, 5])
async def test_a_puback_has_the_packet_id_of_its_publish_and_pubacks_keep_their_order(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await login(world, device, version)
        ids = [7, 3, 65_535, 1]
        await raw.send(b"".join(publish(version, device.topic("state"), qos=1, packet_id=each) for each in ids))
        answers = [await raw.next_packet() for _ in ids]
        assert [(head, int.from_bytes(body[:2])) for head, body in answers] == [(PUBACK, each) for each in ids]


@pytest.mark.parametrize("version", [4, 5])
async def test_a_publish_that_is_not_allowed_is_acknowledged_and_dropped(version: int) -> None:
    async with broker() as world:
        device, other = await world.device(), await world.device()
        raw = await login(world, device, version)
        await raw.send(publish(version, other.topic("state"), qos=1))
        head, body = await raw.next_packet()
        assert (head, body[:2]) == (PUBACK, b"\x00\x01")
        assert version == 4 or body[2] == 0x87
        assert not any(isinstance(event, InboundMessage) for event in world.events)


@pytest.mark.parametrize("below", ["state", "telemetry", ""])
@pytest.mark.parametrize("qos", [0, 1])
async def test_a_topic_alias_closes_the_connection_since_none_is_offered(below: str, qos: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await login(world, device, 5)
        topic = device.topic(below) if below else ""
        await raw.send(wire.publish(topic, b"x", qos=qos, more=b"\x23\x00\x01"))
        assert await refuses(raw, 5, 0x94)
        assert not any(isinstance(event, InboundMessage) for event in world.events)
        assert world.telemetry == 0


@pytest.mark.parametrize("version", [4, 5])
async def test_a_suback_has_the_packet_id_and_one_code_for_each_filter(version: int) -> None:
    async with broker() as world:
        device, other = await world.device(), await world.device()
        raw = await login(world, device, version)
        filters = (device.topic("cmd"), other.topic("cmd"), device.topic("#"), "#")
        packet = subscribe_packet(*filters, packet_id=77) if version == 4 else wire.subscribe(*filters, packet_id=77)
        await raw.send(packet)
        head, body = await raw.next_packet()
        refused = 0x80 if version == 4 else 0x87
        codes = body[2:] if version == 4 else body[3:]
        assert (head, body[:2], list(codes)) == (wire.SUBACK, b"\x00\x4d", [1, refused, 1, refused])


@pytest.mark.parametrize("version", [4, 5])
async def test_a_subscription_at_qos_2_is_granted_qos_1(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await login(world, device, version)
        packet = subscribe_packet(device.topic("cmd")) if version == 4 else wire.subscribe(device.topic("cmd"))
        await raw.send(packet[:-1] + b"\x02")
        assert (await raw.next_packet())[1][-1] == 1


async def test_shared_subscriptions_and_subscription_ids_are_refused() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await login(world, device, 5)
        await raw.send(wire.subscribe("$share/group/" + device.topic("cmd")))
        assert (await raw.next_packet())[1][-1] == 0x9E
        await raw.send(wire.subscribe(device.topic("cmd"), more=b"\x0b\x01"))
        assert (await raw.next_packet())[1][-1] == 0xA1


@pytest.mark.parametrize("version", [4, 5])
async def test_an_unsuback_follows_an_unsubscribe_and_nothing_is_sent_after_it(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await login(world, device, version)
        await raw.send(subscribe_packet(device.topic("cmd")) if version == 4 else wire.subscribe(device.topic("cmd")))
        await raw.next_packet()
        properties = b"" if version == 4 else b"\x00"
        body = b"\x00\x09" + properties
        await raw.send(wire.packet(0xA2, body + wire.utf8_string(device.topic("cmd")) + wire.utf8_string(device.topic("other"))))
        head, answer = await raw.next_packet()
        assert (head, answer[:2]) == (UNSUBACK, b"\x00\x09")
        assert version == 4 or list(answer[3:]) == [0x00, 0x11]
        assert not await world.link.send(device.device_id, OutboundMessage("cmd", b"x"))


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("head", [0x82, 0xA2], ids=["subscribe", "unsubscribe"])
async def test_a_subscribe_or_unsubscribe_without_a_filter_closes_the_connection(version: int, head: int) -> None:
    async with broker() as world:
        raw = await login(world, await world.device(), version)
        await raw.send(wire.packet(head, b"\x00\x01" + (b"" if version == 4 else b"\x00")))
        assert await raw.wait_closed()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("packet", [b"\x80", b"\xa0", b"\xc1", b"\xe1", b"\x60", b"\xf0", b"\x00"], ids=lambda each: each.hex())
async def test_wrong_flags_in_a_fixed_header_and_reserved_types_close_the_connection(version: int, packet: bytes) -> None:
    async with broker() as world:
        raw = await login(world, await world.device(), version)
        body = {b"\xc1": b"", b"\xe1": b""}.get(packet, b"\x00\x01")
        await raw.send(packet + bytes([len(body)]) + body)
        assert await raw.wait_closed()


@pytest.mark.parametrize("version", [4, 5])
async def test_a_packet_that_only_a_server_sends_closes_the_connection(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        for packet in (b"\x20\x02\x00\x00", b"\xd0\x00", b"\x90\x03\x00\x01\x00"):
            raw = await login(world, device, version)
            await raw.send(packet)
            assert await raw.wait_closed()


@pytest.mark.parametrize("version", [4, 5])
async def test_a_pingreq_is_answered(version: int) -> None:
    async with broker() as world:
        raw = await login(world, await world.device(), version)
        await raw.send(PING)
        assert await raw.next_packet() == PONG
