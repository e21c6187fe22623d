"""Floods, garbage and a service that has stopped taking: memory stays, others go on."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest

from domain.devices.link import InboundDeviceConnected, InboundMessage
from support.broker import BrokerDevice, RawMqttConnection, broker, connect_packet, publish_packet
from support.waiting import TIMEOUT_S, until

PING, PONG = b"\xc0\x00", (0xD0, b"")


async def test_a_full_queue_stops_reading_and_nothing_is_lost_or_grows() -> None:
    bound = 64 * 1024
    async with broker(consume=False, inbound_bytes=bound, rate_per_second=0) as world:
        device = await world.device()
        raw = await world.login(device)
        total, payload = 2000, b"x" * 500

        async def flood() -> None:
            for number in range(1, total + 1):
                await raw.send(publish_packet(device.topic("state"), payload + b"%d" % number, qos=0))

        flooding = asyncio.create_task(flood())
        await world.wait_for_stat("waited_queue_full", 1)
        assert world.link.stats()["inbound_queue_bytes"] <= bound
        consuming = asyncio.create_task(world.consume())
        await asyncio.wait_for(flooding, TIMEOUT_S)
        await world.wait_for_event(InboundMessage, payload=payload + b"%d" % total)
        consuming.cancel()
        assert sum(isinstance(event, InboundMessage) for event in world.events) == total


async def test_qos_1_waits_at_a_full_queue_as_long_as_it_takes() -> None:
    async with broker(consume=False, inbound_bytes=4096, rate_per_second=0, qos0_timeout_s=0.05) as world:
        device = await world.device()
        raw = await world.login(device)
        for number in range(1, 61):
            await raw.send(publish_packet(device.topic("telemetry"), b"{}", qos=1, packet_id=number))
        await world.wait_for_stat("waited_queue_full", 1)
        await asyncio.sleep(0.2)
        consuming = asyncio.create_task(world.consume())
        for number in range(1, 61):
            assert await raw.next_packet() == (0x40, number.to_bytes(2, "big"))
        consuming.cancel()
        assert world.link.stats()["dropped_queue_full"] == 0


async def test_qos_0_is_dropped_and_counted_after_its_timeout() -> None:
    async with broker(consume=False, inbound_bytes=4096, rate_per_second=0, qos0_timeout_s=0.05) as world:
        device = await world.device()
        raw = await world.login(device)
        for _ in range(30):
            await raw.send(publish_packet(device.topic("telemetry"), b"{}"))
        await world.wait_for_stat("dropped_queue_full", 3)


async def test_a_connect_at_a_full_queue_waits_and_is_refused_in_the_end() -> None:
    async with broker(consume=False, inbound_bytes=2048, connect_timeout_s=0.3, rate_per_second=0) as world:
        device, late = await world.device(), await world.device()

        async def connect(device: BrokerDevice) -> tuple[RawMqttConnection, tuple[int, bytes] | None]:
            """Without an answer if CONNECT came too late, as from a machine that stood still."""
            raw = await world.open(connect_packet(device))
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                return raw, await raw.next_packet()
            return raw, None

        raw, _ = await until(lambda: connect(device), lambda seen: seen[1])
        for number in range(1, 30):
            await raw.send(publish_packet(device.topic("telemetry"), b"{}", qos=1, packet_id=number))
        await world.wait_for_stat("waited_queue_full", 1)
        _, answer = await until(lambda: connect(late), lambda seen: seen[1])
        assert answer == (0x20, b"\x00\x03")
        assert world.link.stats()["refused_busy"] == 1


async def test_the_window_of_unconfirmed_messages_is_bounded_and_pings_inside_it_are_answered() -> None:
    async with broker(consume=False, max_inflight=4, rate_per_second=0) as world:
        device = await world.device()
        raw = await world.login(device)
        for number in range(1, 5):
            await raw.send(publish_packet(device.topic("state"), b"ON", qos=1, packet_id=number))
        await raw.send(PING)
        assert await raw.next_packet() == PONG
        for number in range(5, 9):
            await raw.send(publish_packet(device.topic("state"), b"ON", qos=1, packet_id=number))
        consuming = asyncio.create_task(world.consume())
        for number in range(1, 9):
            assert await raw.next_packet() == (0x40, number.to_bytes(2, "big"))
        consuming.cancel()


async def test_a_talkative_device_is_slowed_and_no_other_waits_for_it() -> None:
    async with broker(rate_per_second=20, rate_burst=5) as world:
        loud, quiet = await world.device(), await world.device()
        shouting, speaking = await world.login(loud), await world.login(quiet)
        for number in range(1, 61):
            await shouting.send(publish_packet(loud.topic("state"), b"%d" % number, qos=1, packet_id=number))
        await world.wait_for_stat("throttled", 1)
        await speaking.send(publish_packet(quiet.topic("state"), b"here", qos=1))
        assert (await speaking.next_packet())[0] == 0x40
        assert len(world.events_of(loud)) < 60
        last = await world.wait_for_event(InboundMessage, device_id=loud.device_id, payload=b"60")
        first = await world.wait_for_event(InboundMessage, device_id=loud.device_id, payload=b"1")
        # 60 messages, 5 at once, 20 a second.
        assert last.at_ms - first.at_ms > 2500


async def test_an_oversize_payload_is_dropped_and_the_connection_lives() -> None:
    async with broker(rate_per_second=0) as world:
        device = await world.device()
        raw = await world.login(device)
        for number, size in enumerate([64 * 1024 + 1, 1_000_000, 80_000], start=1):
            await raw.send(publish_packet(device.topic("telemetry"), b"x" * size, qos=1, packet_id=number))
            assert await raw.next_packet() == (0x40, number.to_bytes(2, "big"))
        await raw.send(publish_packet(device.topic("telemetry"), b"x" * 500_000))
        await raw.send(publish_packet(device.topic("state"), b"y" * 64 * 1024, qos=1, packet_id=9))
        assert await raw.next_packet() == (0x40, b"\x00\x09")
        assert world.link.stats()["dropped_oversize"] == 4
        assert world.telemetry == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\x00" * 64,
        b"\xff" * 64,
        b"\x10\xff\xff\xff\x7f",
        b"\x10\xff\xff\xff\xff\xff",
        b"\x10\x0a\x00\x04MQTX\x04\x02\x00\x3c",
        b"\x10\x0a\x00\x04MQTT\x09\x02\x00\x3c",
        b"\x10\x02\x00\x04",
        b"\x10\x0c\x00\x04MQTT\x04\xc2\x00\x3c\xff\xff",
        b"\x30\x05\x00\x03abc",
        b"\xe0\x00",
    ],
)
async def test_garbage_is_closed_at_once_and_counted(garbage) -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.login(device)
        stranger = await world.open(garbage)
        async with asyncio.timeout(TIMEOUT_S):
            assert await stranger.wait_closed()
        assert world.link.stats()["refused_garbage"] == 1
        await raw.send(PING)
        assert await raw.next_packet() == PONG


async def test_garbage_after_the_login_ends_that_connection_only() -> None:
    async with broker() as world:
        other = await world.device()
        bystander = await world.login(other)
        for seed in range(60):
            device = await world.device()
            raw = await world.login(device)
            await raw.send(os.urandom(400) if seed else b"\xf0\x00")
            await raw.close()
        await bystander.send(PING)
        assert await bystander.next_packet() == PONG
        assert world.link.stats()["connections"] <= 61


async def test_a_flood_of_garbage_disturbs_no_device() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.login(device)

        async def flood() -> None:
            for _ in range(100):
                stranger = await world.open(os.urandom(2000))
                await stranger.close()

        flooding = [asyncio.create_task(flood()) for _ in range(4)]
        for number in range(1, 51):
            await raw.send(publish_packet(device.topic("telemetry"), b"{}", qos=1, packet_id=number))
            assert await raw.next_packet() == (0x40, number.to_bytes(2, "big"))
        await asyncio.wait_for(asyncio.gather(*flooding), TIMEOUT_S)
        await world.wait_until(lambda: world.telemetry == 50)
        await world.wait_until(lambda: world.link.stats()["sockets"] == 1)


async def test_a_stranger_who_says_nothing_is_closed_in_time() -> None:
    async with broker(connect_timeout_s=0.2) as world:
        silent, slow = await world.open(b""), await world.open(b"\x10")
        assert await silent.wait_closed()
        assert await slow.wait_closed()
        assert world.link.stats()["refused_timeout"] == 2


async def test_connections_above_the_bound_are_turned_away() -> None:
    async with broker(max_connections=2) as world:
        devices = [await world.device() for _ in range(3)]
        raws = [await world.login(device) for device in devices[:2]]
        third = await world.open(connect_packet(devices[2]))
        assert await third.wait_closed()
        await raws[0].close()
        await world.wait_until(lambda: world.link.stats()["sockets"] == 1)
        await world.login(devices[2])
        await world.wait_for_event(InboundDeviceConnected, device_id=devices[2].device_id)


async def test_a_storm_of_reconnects_does_not_disturb_the_telemetry_of_others() -> None:
    async with broker() as world:
        steady = await world.device()
        raw = await world.login(steady)
        fleet = [await world.device() for _ in range(100)]

        async def storm() -> None:
            for _ in range(3):
                raws = await asyncio.gather(*(world.login(device) for device in fleet))
                await asyncio.gather(*(each.close() for each in raws))

        storming = asyncio.create_task(storm())
        for number in range(1, 51):
            await raw.send(publish_packet(steady.topic("telemetry"), b"{}", qos=1, packet_id=number))
            assert await raw.next_packet() == (0x40, number.to_bytes(2, "big"))
        await asyncio.wait_for(storming, TIMEOUT_S)
        await world.wait_until(lambda: world.link.stats()["connections"] == 1)
