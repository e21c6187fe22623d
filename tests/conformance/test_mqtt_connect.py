"""CONNECT, CONNACK, keep alive and will, as MQTT 3.1.1 and MQTT 5 require them of a server. The table is docs/reference/mqtt-conformance.md."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time

import pytest

from domain.devices.link import InboundDeviceConnected, InboundDeviceDisconnected, InboundMessage
from support import mqtt_packets as wire
from support.broker import BrokerDevice, BrokerWorld, RawMqttConnection, broker, connect_packet, publish_packet
from support.waiting import TIMEOUT_S, until

PING, PONG = b"\xc0\x00", (0xD0, b"")
SESSION_EXPIRY, WILL_DELAY, AUTH_METHOD, MAX_PACKET = 0x11, 0x18, 0x15, 0x27


def connect(device: BrokerDevice, version: int, client_id: str = "raw", *, clean: bool = True, keep_alive: int = 60) -> bytes:
    if version == 4:
        return connect_packet(device, client_id, clean=clean, keep_alive=keep_alive)
    return wire.connect(device.device_id, device.password, client_id, clean=clean, keep_alive=keep_alive)


async def connect_v5(world: BrokerWorld, device: BrokerDevice, client_id: str = "raw", **options: object) -> RawMqttConnection:
    raw = await world.open(wire.connect(device.device_id, device.password, client_id, **options))  # type: ignore[arg-type]
    head, body = await raw.next_packet()
    assert (head, body[1]) == (wire.CONNACK, 0), body
    raw.resumed = body[0] == 1
    return raw


async def is_closed_without_a_packet(raw: RawMqttConnection) -> bool:
    async with asyncio.timeout(TIMEOUT_S):
        return await raw.reader.read() == b""


async def test_the_first_packet_must_be_a_connect() -> None:
    async with broker() as world:
        assert await is_closed_without_a_packet(await world.open(PING))


@pytest.mark.parametrize("version", [4, 5])
async def test_a_second_connect_closes_the_connection(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.open(connect(device, version))
        assert (await raw.next_packet())[0] == wire.CONNACK
        await raw.send(connect(device, version))
        assert await raw.wait_closed()


async def test_another_protocol_name_closes_the_connection_without_a_connack() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.open(connect_packet(device).replace(b"\x00\x04MQTT", b"\x00\x04MQTX"))
        assert await is_closed_without_a_packet(raw)


@pytest.mark.parametrize("level", [0, 6, 127])
async def test_an_unknown_protocol_level_is_refused_with_return_code_1(level: int) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.open(connect_packet(device).replace(b"MQTT\x04", b"MQTT" + bytes([level])))
        assert await raw.next_packet() == (wire.CONNACK, b"\x00\x01")
        assert await raw.wait_closed()


@pytest.mark.parametrize("version", [4, 5])
async def test_a_reserved_connect_flag_closes_the_connection_without_a_connack(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        flags = b"MQTT" + bytes([version])
        packet = connect(device, version).replace(flags + b"\xc2", flags + b"\xc3")
        assert await is_closed_without_a_packet(await world.open(packet))


@pytest.mark.parametrize(
    "flags",
    [0xCA, 0xE2, 0xDE, 0x42],
    ids=["will QoS without will", "will retain without will", "will QoS 3", "password without user"],
)
async def test_a_malformed_connect_of_mqtt_3_1_1_gets_no_connack(flags: int) -> None:
    async with broker() as world:
        device = await world.device()
        packet = connect_packet(device).replace(b"MQTT\x04\xc2", b"MQTT\x04" + bytes([flags]))
        assert await is_closed_without_a_packet(await world.open(packet))


async def test_an_empty_client_id_needs_a_clean_session_in_mqtt_3_1_1() -> None:
    async with broker() as world:
        device = await world.device()
        refused = await world.open(connect_packet(device, "", clean=False))
        assert await refused.next_packet() == (wire.CONNACK, b"\x00\x02")
        assert await refused.wait_closed()
        await world.login(device, "", clean=True)
        await world.login(device, "", clean=True)
        assert world.link.stats()["connections"] == 2, "each gets a client id of its own"


async def test_an_empty_client_id_gets_one_assigned_in_mqtt_5() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.open(wire.connect(device.device_id, device.password, ""))
        head, body = await raw.next_packet()
        assert (head, body[:2]) == (wire.CONNACK, b"\x00\x00")
        assert b"\x12\x00\x06auto-" in body


async def test_wrong_credentials_are_refused_and_the_connection_closed() -> None:
    async with broker() as world:
        device = await world.device()
        wrong = BrokerDevice(device.device_id, device.number, "wrong")
        for version, code in ((4, 0x04), (5, 0x86)):
            raw = await world.open(connect(wrong, version))
            head, body = await raw.next_packet()
            assert (head, body[:2]) == (wire.CONNACK, bytes([0, code]))
            assert await raw.wait_closed()


async def test_enhanced_authentication_is_refused() -> None:
    async with broker() as world:
        device = await world.device()
        more = bytes([AUTH_METHOD]) + wire.utf8_string("SCRAM-SHA-256")
        raw = await world.open(wire.connect(device.device_id, device.password, more=more))
        assert (await raw.next_packet())[1][1] == 0x8C
        assert await raw.wait_closed()


async def test_a_connack_announces_maximum_qos_1_and_what_else_is_not_offered() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.open(wire.connect(device.device_id, device.password))
        _, body = await raw.next_packet()
        properties = body[3:]
        assert b"\x24\x01" in properties, "Maximum QoS"
        assert b"\x29\x00" in properties, "Subscription Identifiers Available"
        assert b"\x2a\x00" in properties, "Shared Subscription Available"
        assert b"\x21" + struct.pack(">H", 64) in properties, "Receive Maximum"


async def test_a_clean_start_discards_the_session_and_session_present_tells() -> None:
    async with broker() as world:
        device = await world.device()
        kept = bytes([SESSION_EXPIRY]) + struct.pack(">I", 60)
        for clean, expected in ((False, False), (False, True), (True, False), (False, True), (True, False)):
            raw = await connect_v5(world, device, clean=clean, more=kept)
            assert raw.resumed == expected
            event = await world.wait_for_event(InboundDeviceConnected, session_present=expected)
            assert event.protocol == "mqtt/5"
            world.events.clear()
            await raw.close()
            await world.wait_for_event(InboundDeviceDisconnected)


async def test_a_session_ends_with_its_connection_when_its_expiry_is_0() -> None:
    async with broker() as world:
        device = await world.device()
        await (await connect_v5(world, device, clean=False)).close()
        await world.wait_for_event(InboundDeviceDisconnected)
        assert not (await connect_v5(world, device, clean=False)).resumed


async def test_a_session_ends_after_its_expiry_interval() -> None:
    async with broker() as world:
        device = await world.device()
        kept = bytes([SESSION_EXPIRY]) + struct.pack(">I", 1)
        await (await connect_v5(world, device, clean=False, more=kept)).close()
        await world.wait_for_event(InboundDeviceDisconnected)
        await asyncio.sleep(1.2)
        assert not (await connect_v5(world, device, clean=False, more=kept)).resumed


async def test_a_disconnect_cannot_keep_a_session_that_was_to_end() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await connect_v5(world, device)
        await raw.send(wire.packet(0xE0, b"\x00" + wire.properties(bytes([SESSION_EXPIRY]) + struct.pack(">I", 60))))
        head, body = await raw.next_packet()
        assert (head, body[0]) == (wire.DISCONNECT, 0x82)


@pytest.mark.parametrize("version", [4, 5])
async def test_a_takeover_closes_the_older_connection(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        old = await world.open(connect(device, version))
        await old.next_packet()
        new = await world.open(connect(device, version))
        assert (await new.next_packet())[1][1] == 0
        if version == 5:
            head, body = await old.next_packet()
            assert (head, body[0]) == (wire.DISCONNECT, 0x8E)
        assert await old.wait_closed()


@pytest.mark.parametrize("version", [4, 5])
async def test_a_client_that_is_silent_for_one_and_a_half_times_its_keep_alive_is_disconnected(version: int) -> None:
    async def silent_for_s() -> float:
        async with broker() as world:
            device = await world.device()
            began = time.monotonic()
            raw = await world.open(connect(device, version, keep_alive=1))
            await raw.next_packet()
            if version == 5:
                head, body = await raw.next_packet()
                assert (head, body[0]) == (wire.DISCONNECT, 0x8D)
            assert await raw.wait_closed()
            elapsed_s = time.monotonic() - began
            await world.wait_for_event(InboundDeviceDisconnected, reason="lost")
        assert elapsed_s >= 1.4
        return elapsed_s

    await until(silent_for_s, lambda elapsed_s: elapsed_s < 4)


@pytest.mark.parametrize("version", [4, 5])
async def test_any_packet_keeps_a_client_alive(version: int) -> None:
    async def lives_on() -> bool:
        """False when it was not heard in time, as on a machine that stood still."""
        async with broker() as world:
            device = await world.device()
            raw = await world.open(connect(device, version, keep_alive=1))
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await raw.next_packet()
                for _ in range(4):
                    await asyncio.sleep(0.6)
                    await raw.send(PING)
                    if await raw.next_packet() != PONG:
                        return False
                return True
            return False

    await until(lives_on, bool)


def v5_with_will(device: BrokerDevice, delay_s: int, *, expiry_s: int = 60, clean: bool = False) -> dict[str, object]:
    return {
        "will": (device.topic("status"), b"offline"),
        "will_more": bytes([WILL_DELAY]) + struct.pack(">I", delay_s),
        "more": bytes([SESSION_EXPIRY]) + struct.pack(">I", expiry_s),
        "clean": clean,
    }


def wills(world: BrokerWorld) -> list[InboundMessage]:
    return [event for event in world.events if isinstance(event, InboundMessage) and event.payload == b"offline"]


async def test_a_will_is_published_after_its_delay() -> None:
    async def delay_s() -> float:
        async with broker() as world:
            device = await world.device()
            await (await connect_v5(world, device, **v5_with_will(device, 1))).close()
            lost = await world.wait_for_event(InboundDeviceDisconnected, reason="lost")
            will = await world.wait_for_event(InboundMessage, topic="status", payload=b"offline", retain=True)
        assert will.at_ms - lost.at_ms >= 900
        return (will.at_ms - lost.at_ms) / 1_000

    await until(delay_s, lambda seconds: seconds < 4)


async def test_a_client_that_reconnects_within_the_delay_leaves_no_will() -> None:
    async def came_in_time() -> bool:
        async with broker() as world:
            device = await world.device()
            await (await connect_v5(world, device, **v5_with_will(device, 1))).close()
            lost = await world.wait_for_event(InboundDeviceDisconnected, reason="lost")
            assert (await connect_v5(world, device, **v5_with_will(device, 60))).resumed
            await asyncio.sleep(1.3)
            *_, again = [event for event in world.events if isinstance(event, InboundDeviceConnected)]
            if not 0 <= again.at_ms - lost.at_ms < 900:
                return False
            assert not wills(world)
            return True

    await until(came_in_time, bool)


async def test_a_will_is_published_when_its_session_ends_before_the_delay() -> None:
    async with broker() as world:
        device = await world.device()
        await (await connect_v5(world, device, **v5_with_will(device, 60, expiry_s=1))).close()
        lost = await world.wait_for_event(InboundDeviceDisconnected, reason="lost")
        will = await world.wait_for_event(InboundMessage, topic="status", payload=b"offline")
        assert will.at_ms - lost.at_ms >= 900


async def test_a_clean_start_ends_the_session_and_so_publishes_its_delayed_will() -> None:
    async with broker() as world:
        device = await world.device()
        await (await connect_v5(world, device, **v5_with_will(device, 60))).close()
        await world.wait_for_event(InboundDeviceDisconnected, reason="lost")
        await connect_v5(world, device, clean=True)
        await world.wait_for_event(InboundMessage, topic="status", payload=b"offline")
        assert len(wills(world)) == 1


async def test_a_delay_of_0_or_no_stored_session_publishes_the_will_at_once() -> None:
    async with broker() as world:
        for delay_s, expiry_s in ((0, 60), (60, 0)):
            device = await world.device()
            await (await connect_v5(world, device, **v5_with_will(device, delay_s, expiry_s=expiry_s))).close()
            lost = await world.wait_for_event(InboundDeviceDisconnected, device_id=device.device_id)
            will = await world.wait_for_event(InboundMessage, device_id=device.device_id, payload=b"offline")
            assert world.events.index(will) < world.events.index(lost)


async def test_a_normal_disconnect_leaves_no_will_and_reason_4_asks_for_it() -> None:
    async with broker() as world:
        device = await world.device()
        for reason in (0x00, 0x04):
            raw = await connect_v5(world, device, **v5_with_will(device, 0))
            await raw.send(wire.packet(0xE0, bytes([reason])))
            assert await raw.wait_closed()
            await world.wait_for_event(InboundDeviceDisconnected, reason="disconnected")
            assert len(wills(world)) == (1 if reason else 0)
            world.events.clear()


async def test_a_will_above_the_maximum_qos_is_refused_in_mqtt_5() -> None:
    async with broker() as world:
        device = await world.device()
        packet = wire.connect(device.device_id, device.password, will=(device.topic("status"), b"offline"))
        raw = await world.open(packet.replace(b"MQTT\x05\xee", b"MQTT\x05\xf6"))
        assert (await raw.next_packet())[1][1] == 0x9B
        assert await raw.wait_closed()


async def test_a_will_at_qos_2_is_accepted_in_mqtt_3_1_1() -> None:
    async with broker() as world:
        device = await world.device()
        packet = connect_packet(device, will=(device.topic("status"), b"offline"))
        raw = await world.open(packet.replace(b"MQTT\x04\xee", b"MQTT\x04\xf6"))
        assert (await raw.next_packet())[1][1] == 0
        await raw.close()
        await world.wait_for_event(InboundMessage, topic="status", payload=b"offline")


async def test_a_taken_over_connection_leaves_no_will() -> None:
    async with broker() as world:
        device = await world.device()
        old = await world.login(device, will=(device.topic("status"), b"offline"))
        new = await world.login(device)
        assert await old.wait_closed()
        await new.send(publish_packet(device.topic("state"), b"ON", qos=1))
        await world.wait_for_event(InboundMessage, topic="state")
        assert not wills(world)


async def test_the_maximum_packet_size_and_the_version_of_a_client_are_known() -> None:
    async with broker() as world:
        device = await world.device()
        assert world.link.max_packet_size(device.device_id) is None
        await connect_v5(world, device, more=bytes([MAX_PACKET]) + struct.pack(">I", 256))
        event = await world.wait_for_event(InboundDeviceConnected)
        assert (event.protocol, event.max_packet_size, event.session_present) == ("mqtt/5", 256, False)
        assert world.link.max_packet_size(device.device_id) == 256
