"""What the service sends: heard or said not to be, retained, in time or not at all."""

from __future__ import annotations

import asyncio

import aiomqtt
import pytest

from domain.devices.link import InboundDeviceSubscribed
from domain.devices.messages import OutboundMessage
from support.broker import broker, subscribe_packet
from support.waiting import TIMEOUT_S

V311, V5 = aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5


async def received(client: aiomqtt.Client) -> aiomqtt.Message:
    return await asyncio.wait_for(anext(aiter(client.messages)), TIMEOUT_S)


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_command_reaches_the_device_that_listens(version) -> None:
    async with broker() as world:
        device, other = await world.device(), await world.device()
        async with world.client(device, protocol=version) as client, world.client(other) as bystander:
            await client.subscribe(device.topic("cmd"), qos=1)
            await bystander.subscribe(other.topic("#"), qos=1)
            assert await world.link.send(device.device_id, OutboundMessage("cmd", b'{"id":"exe_1"}', expiry_s=30))
            message = await received(client)
            assert (str(message.topic), message.payload, message.qos, message.retain) == (
                device.topic("cmd"),
                b'{"id":"exe_1"}',
                1,
                False,
            )
            if version == V5:
                assert message.properties is not None
                assert 28 <= message.properties.MessageExpiryInterval <= 30
            await world.wait_for_stat("outbound_acked", 1)
            assert len(bystander.messages) == 0


async def test_a_command_without_a_subscriber_is_reported_as_not_sent() -> None:
    async with broker() as world:
        device = await world.device()
        assert not await world.link.send(device.device_id, OutboundMessage("cmd", b"x"))
        assert not await world.link.send("dev_unknownunknownunknow", OutboundMessage("cmd", b"x"))
        raw = await world.login(device)
        assert not await world.link.send(device.device_id, OutboundMessage("cmd", b"x")), "connected but not subscribed"
        await raw.send(subscribe_packet(device.topic("sched")))
        await raw.next_packet()
        assert not await world.link.send(device.device_id, OutboundMessage("cmd", b"x"))
        await raw.send(subscribe_packet(device.topic("cmd")))
        await raw.next_packet()
        assert await world.link.send(device.device_id, OutboundMessage("cmd", b"x"))
        await raw.close()
        await world.wait_until(lambda: not world.link.is_connected(device.device_id))
        assert not await world.link.send(device.device_id, OutboundMessage("cmd", b"x"))


async def test_the_retained_schedule_is_given_at_each_subscription_until_it_is_cleared() -> None:
    async with broker() as world:
        device = await world.device()
        assert not await world.link.send(device.device_id, OutboundMessage("sched", b'{"rev":1}', retain=True))
        await world.link.send(device.device_id, OutboundMessage("sched", b'{"rev":2}', retain=True))
        async with world.client(device) as client:
            await client.subscribe(device.topic("#"), qos=1)
            first = await received(client)
            assert (first.payload, first.retain) == (b'{"rev":2}', True)
            assert await world.link.send(device.device_id, OutboundMessage("sched", b'{"rev":3}', retain=True))
            live = await received(client)
            assert (live.payload, live.retain) == (b'{"rev":3}', False)
        async with world.client(device) as client:
            await client.subscribe(device.topic("sched"), qos=1)
            assert (await received(client)).payload == b'{"rev":3}'
            await world.link.send(device.device_id, OutboundMessage("sched", b"", retain=True))
            assert (await received(client)).payload == b""
        raw = await world.login(device)
        await raw.send(subscribe_packet(device.topic("sched")))
        assert (await raw.next_packet())[0] == 0x90
        await raw.send(b"\xc0\x00")
        assert await raw.next_packet() == (0xD0, b""), "nothing is retained any more"


async def test_an_expelled_device_finds_no_retained_message_when_it_is_admitted_again() -> None:
    async with broker() as world:
        device = await world.device()
        await world.link.send(device.device_id, OutboundMessage("sched", b'{"rev":1}', retain=True))
        await world.link.remove_device(device.device_id)
        await world.link.upsert_credentials(device.device_id, device.number, device.password, "native")
        raw = await world.login(device)
        await raw.send(subscribe_packet(device.topic("sched")) + b"\xc0\x00")
        assert [(await raw.next_packet())[0] for _ in (1, 2)] == [0x90, 0xD0]


async def test_a_command_that_expired_before_it_could_be_sent_is_never_sent() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.login(device)
        await raw.send(subscribe_packet(device.topic("cmd")))
        await raw.next_packet()
        # 64 unacknowledged messages fill the window; what follows waits for an acknowledgement.
        for number in range(64):
            assert await world.link.send(device.device_id, OutboundMessage("cmd", b"%d" % number))
            await world.wait_for_stat("outbound_sent", number + 1)
        assert await world.link.send(device.device_id, OutboundMessage("cmd", b"late", expiry_s=1))
        ids = [(await raw.next_packet())[1] for _ in range(64)]
        topic_length = 2 + len(device.topic("cmd"))
        await asyncio.sleep(1.1)
        await raw.send(b"\x40\x02" + ids[0][topic_length : topic_length + 2])
        await world.wait_for_stat("outbound_expired", 1)
        await raw.send(b"\xc0\x00")
        assert await raw.next_packet() == (0xD0, b"")


async def test_a_device_that_does_not_read_is_sent_a_bounded_number_and_then_none() -> None:
    async with broker(outbound_queue=10) as world:
        device = await world.device()
        raw = await world.login(device)
        await raw.send(subscribe_packet(device.topic("cmd")))
        await raw.next_packet()
        for number in range(1, 65):
            assert await world.link.send(device.device_id, OutboundMessage("cmd", b"x" * 1000))
            await world.wait_for_stat("outbound_sent", number)
        taken = [await world.link.send(device.device_id, OutboundMessage("cmd", b"x")) for _ in range(12)]
        assert [bool(each) for each in taken] == [True] * 10 + [False] * 2


async def test_a_kept_session_finds_its_subscription_and_its_unacknowledged_command_again() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.login(device, clean=False)
        assert not raw.resumed
        await raw.send(subscribe_packet(device.topic("cmd")))
        await raw.next_packet()
        assert await world.link.send(device.device_id, OutboundMessage("cmd", b"once"))
        first = await raw.next_packet()
        await raw.close()
        await world.wait_until(lambda: not world.link.is_connected(device.device_id))
        assert not await world.link.send(device.device_id, OutboundMessage("cmd", b"offline")), "the caller keeps it"
        world.events.clear()
        again = await world.login(device, clean=False)
        assert again.resumed
        await world.wait_for_event(InboundDeviceSubscribed, topic_filter="cmd")
        head, body = await again.next_packet()
        assert (head & 0x08, body[-4:]) == (0x08, b"once")
        assert first[1][-4:] == b"once"
        assert await world.link.send(device.device_id, OutboundMessage("cmd", b"more"))
        assert (await again.next_packet())[1].endswith(b"more")
        await again.close()
        fresh = await world.login(device, clean=True)
        assert not fresh.resumed
        assert not await world.link.send(device.device_id, OutboundMessage("cmd", b"x"))


async def test_a_topic_with_a_wildcard_cannot_be_sent_to() -> None:
    async with broker() as world:
        device = await world.device()
        with pytest.raises(ValueError, match="not a topic"):
            await world.link.send(device.device_id, OutboundMessage("cmd/#", b"x"))


async def test_an_mqtt_5_client_gets_nothing_larger_than_it_takes() -> None:
    import paho.mqtt.properties as mqtt_properties
    from paho.mqtt.packettypes import PacketTypes

    async with broker() as world:
        device = await world.device()
        properties = mqtt_properties.Properties(PacketTypes.CONNECT)
        properties.MaximumPacketSize = 200
        async with world.client(device, protocol=V5, properties=properties) as client:
            await client.subscribe(device.topic("cmd"), qos=1)
            await world.link.send(device.device_id, OutboundMessage("cmd", b"x" * 500))
            await world.link.send(device.device_id, OutboundMessage("cmd", b"small"))
            assert (await received(client)).payload == b"small"
        assert world.link.stats()["outbound_too_large"] == 1


async def test_subscribing_again_to_what_it_hears_is_no_news_and_a_session_found_again_is() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.login(device, clean=False)
        assert world.link.last_subscribed_ms(device.device_id) == 0
        await raw.send(subscribe_packet(device.topic("cmd")))
        await raw.next_packet()
        first = await world.wait_for_event(InboundDeviceSubscribed, topic_filter="cmd")
        assert world.link.last_subscribed_ms(device.device_id) == first.at_ms
        await raw.close()
        await world.wait_until(lambda: not world.link.is_connected(device.device_id))
        world.events.clear()
        again = await world.login(device, clean=False)
        found = await world.wait_for_event(InboundDeviceSubscribed, topic_filter="cmd")
        assert world.link.last_subscribed_ms(device.device_id) == found.at_ms > first.at_ms
        world.events.clear()
        for topic in ("cmd", "sched"):
            await again.send(subscribe_packet(device.topic(topic)))
            await again.next_packet()
        other = await world.wait_for_event(InboundDeviceSubscribed, topic_filter="sched")
        assert [event.topic_filter for event in world.events if isinstance(event, InboundDeviceSubscribed)] == ["sched"]
        assert world.link.last_subscribed_ms(device.device_id) == other.at_ms > found.at_ms


async def test_a_suspended_link_closes_everything_and_listens_again_when_it_resumes() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.login(device)
        world.link.suspend()
        assert await raw.wait_closed()
        async with asyncio.timeout(TIMEOUT_S):
            while await listens(world.port):
                await asyncio.sleep(0)
        await world.wait_until(lambda: not world.link.is_connected(device.device_id))
        world.link.resume()
        async with asyncio.timeout(TIMEOUT_S):
            while not await listens(world.port):
                await asyncio.sleep(0)
        await (await world.login(device)).close()
