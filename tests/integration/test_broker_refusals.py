"""What the broker refuses a device is told, and a retransmission is one message."""

from __future__ import annotations

import asyncio

import pytest

from domain.devices.link import InboundDeviceSubscribed, InboundMessage, InboundMessagesDropped
from support import mqtt_packets as wire
from support.broker import BrokerDevice, BrokerWorld, broker, connect_packet, publish_packet, subscribe_packet

PUBACK, SUBACK, CONNACK = 0x40, 0x90, 0x20
SERVER_UNAVAILABLE = b"\x00\x03"


async def told(world: BrokerWorld, device: BrokerDevice, reason: str) -> str:
    """The topic of the refusal."""
    return (await world.wait_for_event(InboundMessagesDropped, device_id=device.device_id, reason=reason)).topic


@pytest.mark.parametrize("version", [4, 5])
async def test_a_publish_at_qos_2_is_told_with_its_topic(version: int) -> None:
    async with broker() as world:
        device = await world.device()
        if version == 4:
            raw = await world.login(device)
            await raw.send(publish_packet(device.topic("state"), b"ON", qos=2))
        else:
            raw = await world.open(wire.connect(device.device_id, device.password))
            await raw.send(wire.publish(device.topic("state"), b"ON", qos=2))
        assert await raw.wait_closed()
        assert await told(world, device, "QOS_2") == "state"


async def test_a_topic_of_another_is_told_whether_it_is_published_subscribed_or_left_as_a_will() -> None:
    """And once, not as a dropped message too."""
    async with broker() as world:
        for way in ("publish", "subscribe", "will"):
            device, other = await world.device(), await world.device()
            if way == "will":
                await world.open(connect_packet(device, will=("$SYS/broker/connection/bridge/state", b"0")))
                assert await told(world, device, "TOPIC_NOT_ALLOWED") == "$SYS/broker/connection/bridge/state"
                continue
            raw = await world.login(device)
            packet = publish_packet(other.topic("state"), b"ON") if way == "publish" else subscribe_packet(other.topic("state"))
            await raw.send(packet)
            assert await told(world, device, "TOPIC_NOT_ALLOWED") == other.topic("state")
            await raw.send(publish_packet(device.topic("state"), b"ON", qos=1))  # its event comes after all that was told before
            await world.wait_for_event(InboundMessage, device_id=device.device_id)
            dropped = [each for each in world.events_of(device) if isinstance(each, InboundMessagesDropped)]
            assert [each.reason for each in dropped] == ["TOPIC_NOT_ALLOWED"]


async def test_a_session_to_be_kept_without_a_client_id_is_told_whose_it_is() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.open(connect_packet(device, "", clean=False))
        assert await raw.next_packet() == (CONNACK, b"\x00\x02")
        assert await told(world, device, "CLIENT_ID") == ""


@pytest.mark.parametrize("version", [4, 5])
async def test_the_client_id_of_another_device_or_of_the_service_is_refused_and_told(version: int) -> None:
    async with broker() as world:
        other = await world.device()
        for client_id in (other.device_id, "latchboard", "latchboard-telemetry-0"):
            device = await world.device()
            if version == 4:
                raw, code = await world.open(connect_packet(device, client_id)), b"\x00\x02"
            else:
                raw = await world.open(wire.connect(device.device_id, device.password, client_id=client_id))
                code = b"\x00\x85"
            kind, body = await raw.next_packet()
            assert (kind, body[:2]) == (CONNACK, code)
            assert await told(world, device, "CLIENT_ID") == ""
            assert not world.link.is_connected(device.device_id)
            own = await world.login(device, device.device_id)
            await own.close()


async def test_what_mqtt_does_not_allow_is_told_of_a_device_that_has_logged_in() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.login(device)
        await raw.send(connect_packet(device))
        assert await raw.wait_closed()
        await told(world, device, "PROTOCOL_ERROR")


async def test_what_a_stranger_does_with_the_id_of_a_device_costs_one_event() -> None:
    async with broker() as world:
        device = await world.device()
        for number in range(30):
            await (await world.open(connect_packet(BrokerDevice(device.device_id, 0, f"wrong{number:027d}")))).wait_closed()
        await told(world, device, "WRONG_PASSWORD")
        await world.wait_for_stat("refused_credentials", 30)
        assert len(world.events_of(device)) == 1


COMMAND_TOPICS = {"native": "cmd", "tasmota": "cmnd/POWER", "esphome": "switch/relay/command", "shelly": "rpc"}


@pytest.mark.parametrize("profile", COMMAND_TOPICS)
async def test_the_command_topics_of_the_firmware_find_a_place_beside_any_others(profile: str) -> None:
    async with broker() as world:
        device = await world.device(profile)
        raw = await world.login(device)
        await raw.send(subscribe_packet(*(device.topic(f"t{number}") for number in range(16))))
        assert (await raw.next_packet())[1][2:] == b"\x01" * 16
        await raw.send(subscribe_packet(device.topic("t16"), device.topic(COMMAND_TOPICS[profile]), device.topic("t3")))
        assert (await raw.next_packet())[1][2:] == b"\x80\x01\x01", "the last one exists"
        assert await told(world, device, "TOO_MANY_SUBSCRIPTIONS") == "t16"
        await world.wait_for_event(InboundDeviceSubscribed, topic_filter=COMMAND_TOPICS[profile])


async def test_an_esphome_board_with_forty_switches_hears_all_of_them_and_no_session_grows_without_bound() -> None:
    async with broker() as world:
        device = await world.device("esphome")
        raw = await world.login(device)
        for number in range(40):
            await raw.send(subscribe_packet(device.topic(f"switch/s{number}/command")))
            assert (await raw.next_packet())[1][2:] == b"\x01"
        await raw.send(subscribe_packet(*(device.topic(f"light/l{number}/command") for number in range(100))))
        assert (await raw.next_packet())[1][2:] == b"\x01" * 88 + b"\x80" * 12


async def test_two_boards_with_one_identity_come_in_a_handful_of_times_and_it_is_told() -> None:
    async with broker() as world:
        device = await world.device()
        answers: list[bytes] = []

        async def board() -> None:
            while world.link.stats()["refused_takeovers"] < 6:
                raw = await world.open(connect_packet(device, "pump"))
                answers.append((await raw.next_packet())[1])
                if answers[-1] == b"\x00\x00":
                    while world.link.stats()["refused_takeovers"] < 6 and not raw.reader.at_eof():
                        await asyncio.wait([asyncio.ensure_future(raw.reader.read(1))], timeout=0.1)

        await asyncio.gather(board(), board())
        assert set(answers) == {b"\x00\x00", SERVER_UNAVAILABLE}
        assert world.link.stats()["takeovers"] < 12
        await told(world, device, "IDENTITY_USED_TWICE")
        assert world.link.is_connected(device.device_id)


async def test_a_device_that_is_kept_out_comes_in_when_the_other_has_gone() -> None:
    async with broker() as world:
        device = await world.device()
        raws = [await world.login(device, "pump") for _ in range(7)]
        kept_out = await world.open(connect_packet(device, "pump"))
        assert await kept_out.next_packet() == (CONNACK, SERVER_UNAVAILABLE)
        await raws[-1].close()
        await world.wait_until(lambda: not world.link.is_connected(device.device_id))
        await world.login(device, "pump")


@pytest.mark.parametrize("payload", [b'{"t":1}', b'{"ts":1795233602120,"m":{"t":1}}'])
@pytest.mark.parametrize("topic", ["telemetry", "state"])
async def test_a_retransmission_on_the_same_connection_is_the_same_message(topic: str, payload: bytes) -> None:
    async with broker(consume=False) as world:
        device = await world.device()
        raw = await world.login(device)

        def message(packet_id: int, *, dup: bool, body: bytes = payload) -> bytes:
            return publish_packet(device.topic(topic), body, qos=1, packet_id=packet_id, dup=dup)

        await raw.send(message(1, dup=False) + message(2, dup=False) + message(1, dup=True) + message(2, dup=True))
        await raw.send(message(1, dup=True) + message(3, dup=True, body=payload + b" "))
        await world.wait_for_stat("inbound_duplicates", 4)
        consumer = asyncio.create_task(world.consume())
        try:
            acknowledged = [await raw.next_packet() for _ in range(3)]
            assert acknowledged == [(PUBACK, b"\x00\x01"), (PUBACK, b"\x00\x02"), (PUBACK, b"\x00\x03")]
            await raw.send(message(2, dup=True))
            assert await raw.next_packet() == (PUBACK, b"\x00\x02"), "the copy was read after the PUBACK was sent"
            await raw.send(message(2, dup=False))
            assert await raw.next_packet() == (PUBACK, b"\x00\x02"), "a new message with an id that is free again"
        finally:
            consumer.cancel()
            await asyncio.wait([consumer])
        stored = world.telemetry + sum(isinstance(event, InboundMessage) for event in world.events)
        assert stored == 4


async def test_other_bytes_under_the_same_packet_id_are_another_message() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.login(device)
        for body in (b"ON", b"OFF"):
            await raw.send(publish_packet(device.topic("state"), body, qos=1, packet_id=1, dup=True))
            assert await raw.next_packet() == (PUBACK, b"\x00\x01")
        assert [event.payload for event in world.events if isinstance(event, InboundMessage)] == [b"ON", b"OFF"]
