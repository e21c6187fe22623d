"""A device speaks and listens below its own prefix only; what it may not say is dropped, and nobody else notices."""

from __future__ import annotations

import aiomqtt
import paho.mqtt.properties as mqtt_properties
import pytest
from paho.mqtt.packettypes import PacketTypes

from domain.devices.link import InboundDeviceSubscribed, InboundMessage, InboundMessagesDropped
from support.broker import broker, connect_packet, publish_packet, subscribe_packet

V5 = aiomqtt.ProtocolVersion.V5


def forbidden(own: str, other: str) -> list[str]:
    mine, theirs = f"devices/{own}", f"devices/{other}"
    return [
        f"{theirs}/state",
        f"{theirs}/telemetry",
        f"{theirs}/cmd",
        f"{mine}/cmd",
        f"{mine}/sched",
        f"{mine}/time",
        f"{mine}",
        f"{mine}/",
        f"{mine}x/state",
        f"{mine}/../{other}/state",
        "devices",
        "state",
        "$SYS/broker/uptime",
        "$share/group/x",
        f"/{mine}/state",
        f"{mine}/" + "a" * 300,
        f"{mine}/" + "a/" * 30_000,
    ]


async def test_what_a_device_may_not_publish_is_acknowledged_and_goes_nowhere() -> None:
    async with broker(rate_per_second=0) as world:
        device, other = await world.device(), await world.device()
        raw = await world.login(device)
        listener = await world.login(other)
        await listener.send(subscribe_packet(other.topic("#")))
        await listener.next_packet()
        topics = forbidden(device.device_id, other.device_id)
        # A path is no file system: this one is below the own prefix, a harmless topic of an odd name.
        topics.remove(f"devices/{device.device_id}/../{other.device_id}/state")
        for number, topic in enumerate(topics, start=1):
            await raw.send(publish_packet(topic, b"evil", qos=1, packet_id=number))
            assert await raw.next_packet() == (0x40, number.to_bytes(2, "big")), topic
        await raw.send(publish_packet(device.topic("state"), b"ON", qos=1, packet_id=999))
        assert await raw.next_packet() == (0x40, (999).to_bytes(2, "big"))
        published = [event for event in world.events if isinstance(event, InboundMessage)]
        assert [event.payload for event in published] == [b"ON"]
        assert world.telemetry == 0
        stats = world.link.stats()
        assert stats["dropped_forbidden"] + stats["dropped_oversize"] == len(topics)
        await listener.send(b"\xc0\x00")
        assert await listener.next_packet() == (0xD0, b""), "the other device has heard nothing of it"


async def test_an_mqtt_5_device_receives_not_authorized() -> None:
    async with broker() as world:
        device = await world.device()
        async with world.client(device, protocol=V5) as client:
            codes: dict[int, int] = {}
            client._client.on_publish = lambda _c, _u, mid, code, _p: codes.__setitem__(mid, code.value)
            info = client._client.publish(device.topic("cmd"), b"ON", qos=1)
            await world.wait_until(lambda: info.mid in codes)
            assert codes[info.mid] == 0x87


@pytest.mark.parametrize(
    ("profile", "closed", "open_"),
    [
        ("tasmota", ["cmnd/POWER", "cmnd"], ["stat/POWER", "tele/SENSOR", "cmd"]),
        ("esphome", ["switch/relay/command"], ["switch/relay/state", "status"]),
        ("shelly", ["rpc", "command/switch:0"], ["events/rpc", "status/switch:0", "online"]),
    ],
)
async def test_each_profile_closes_its_own_downward_topics(profile, closed, open_) -> None:
    async with broker() as world:
        device = await world.device(profile)
        raw = await world.login(device)
        for number, below in enumerate([*closed, *open_], start=1):
            await raw.send(publish_packet(device.topic(below), b"x", qos=1, packet_id=number))
            await raw.next_packet()
        assert [event.topic for event in world.events if isinstance(event, InboundMessage)] == open_


async def test_telemetry_of_a_stock_firmware_is_an_event_because_only_its_profile_can_read_it() -> None:
    async with broker() as world:
        device = await world.device("tasmota")
        raw = await world.login(device)
        await raw.send(publish_packet(device.topic("telemetry"), b"{}", qos=1))
        await world.wait_for_event(InboundMessage, topic="telemetry")
        assert world.telemetry == 0


async def test_a_device_subscribes_below_its_prefix_only() -> None:
    async with broker() as world:
        device, other = await world.device(), await world.device()
        raw = await world.login(device)
        mine = f"devices/{device.device_id}"
        refused = [
            "#",
            "+/#",
            "devices/#",
            "devices/+/cmd",
            "+/+/cmd",
            "$SYS/#",
            "$share/g/" + mine + "/cmd",
            mine,
            other.topic("cmd"),
            other.topic("#"),
            f"{mine}/a#",
            f"{mine}/#/b",
            f"{mine}/" + "a" * 300,
        ]
        for topic_filter in refused:
            await raw.send(subscribe_packet(topic_filter))
            assert await raw.next_packet() == (0x90, b"\x00\x01\x80"), topic_filter
        granted = ["cmd", "#", "+", "a/+/#"]
        await raw.send(subscribe_packet(*(device.topic(each) for each in granted)))
        assert await raw.next_packet() == (0x90, b"\x00\x01" + b"\x01" * len(granted))
        await world.wait_for_event(InboundDeviceSubscribed, topic_filter="a/+/#")
        received = [event.topic_filter for event in world.events if isinstance(event, InboundDeviceSubscribed)]
        assert received == granted


async def test_a_session_has_a_bounded_number_of_filters() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.login(device)
        await raw.send(subscribe_packet(*(device.topic(f"t{n}") for n in range(20))))
        _, body = await raw.next_packet()
        assert body[2:] == b"\x01" * 16 + b"\x80" * 4


async def test_what_a_device_publishes_comes_back_to_nobody() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.login(device)
        await raw.send(subscribe_packet(device.topic("#")))
        await raw.next_packet()
        await raw.send(publish_packet(device.topic("state"), b"ON", qos=1))
        assert (await raw.next_packet())[0] == 0x40
        await raw.send(b"\xc0\x00")
        assert await raw.next_packet() == (0xD0, b"")


@pytest.mark.parametrize("below", ["foreign", "cmd", "wild/+"])
async def test_a_connection_with_a_will_it_may_not_publish_is_refused(below) -> None:
    async with broker() as world:
        device, other = await world.device(), await world.device()
        topic = other.topic("status") if below == "foreign" else device.topic(below)
        raw = await world.open(connect_packet(device, will=(topic, b"offline")))
        assert await raw.next_packet() == (0x20, b"\x00\x05")
        assert await raw.wait_closed()
        assert world.link.stats()["refused_will"] == 1
        told = await world.wait_for_event(InboundMessagesDropped)
        assert world.events == [told]
        assert (told.reason, told.topic) == ("TOPIC_NOT_ALLOWED", topic if below == "foreign" else below)


async def test_a_topic_alias_that_was_never_granted_ends_the_connection() -> None:
    async with broker() as world:
        device, other = await world.device(), await world.device()
        bystander = await world.login(other)
        async with world.client(device, protocol=V5) as client:
            properties = mqtt_properties.Properties(PacketTypes.PUBLISH)
            properties.TopicAlias = 1
            client._client.publish("", b"x", qos=0, properties=properties)
            await world.wait_for_stat("closed_protocol_error", 1)
        await bystander.send(b"\xc0\x00")
        assert await bystander.next_packet() == (0xD0, b"")
