"""Who is let in, over every protocol version and transport, and who is not."""

from __future__ import annotations

import asyncio

import aiomqtt
import pytest

from domain.devices.link import InboundDeviceConnected, InboundDeviceDisconnected, InboundMessage, InboundMessagesDropped
from domain.kernel.errors import Unavailable
from support.broker import broker, connect_packet, new_device, publish_packet
from support.waiting import TIMEOUT_S

V311, V5 = aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5


@pytest.mark.parametrize(
    ("transport", "version", "name"),
    [("tcp", V311, "mqtt/3.1.1"), ("tcp", V5, "mqtt/5"), ("websockets", V311, "ws/mqtt/3.1.1"), ("websockets", V5, "ws/mqtt/5")],
)
async def test_a_device_comes_in_with_its_password(transport, version, name) -> None:
    async with broker() as world:
        device = await world.device()
        port = world.ports[transport == "websockets"]
        async with world.client(device, port=port, transport=transport, protocol=version) as client:
            connected = await world.wait_for_event(InboundDeviceConnected, device_id=device.device_id)
            assert (connected.protocol, connected.device_no) == (name, device.number)
            assert world.link.is_connected(device.device_id)
            await client.publish(device.topic("state"), b"ON", qos=1)
            await world.wait_for_event(InboundMessage, topic="state", payload=b"ON", qos=1)
        await world.wait_for_event(InboundDeviceDisconnected, device_id=device.device_id, reason="disconnected")
        assert not world.link.is_connected(device.device_id)


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_wrong_password_an_unknown_device_and_nobody_are_refused(version) -> None:
    async with broker() as world:
        device = await world.device()
        other = await world.device()
        wrong = {"password": "0" * 32}, {"password": other.password}, {"password": ""}, {"username": new_device().device_id}
        for fault in wrong:
            credentials = {"username": device.device_id, "password": device.password, **fault}
            with pytest.raises(aiomqtt.MqttError) as refused:
                await _enter(aiomqtt.Client("127.0.0.1", world.port, protocol=version, **credentials))
            assert refused.value.rc in (4, 134), "bad user name or password"
        with pytest.raises(aiomqtt.MqttError):
            await _enter(aiomqtt.Client("127.0.0.1", world.port, protocol=version))
        assert world.link.stats()["refused_credentials"] == len(wrong)
        assert world.link.stats()["refused_anonymous"] == 1
        told = await world.wait_for_event(InboundMessagesDropped)
        assert world.events == [told]
        assert (told.device_id, told.reason) == (device.device_id, "WRONG_PASSWORD"), "at most once a minute"


async def _enter(client: aiomqtt.Client) -> None:
    async with client:
        pass


async def test_a_new_password_cuts_the_old_one_off() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.login(device)
        await world.link.upsert_credentials(device.device_id, device.number, "n" * 32, "native")
        assert await raw.wait_closed()
        await world.wait_for_event(InboundDeviceDisconnected, device_id=device.device_id, reason="revoked")
        again = await world.open(connect_packet(device))
        assert await again.next_packet() == (0x20, b"\x00\x04")
        device.password = "n" * 32
        await world.login(device)


async def test_admitting_again_with_the_same_password_disturbs_nobody() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.login(device)
        await world.link.upsert_credentials(device.device_id, device.number, device.password, "native")
        await raw.send(b"\xc0\x00")
        assert await raw.next_packet() == (0xD0, b"")


async def test_an_expelled_device_is_cut_at_once_and_cannot_come_back() -> None:
    async with broker() as world:
        device, other = await world.device(), await world.device()
        raw, bystander = await world.login(device), await world.login(other)
        async with asyncio.timeout(TIMEOUT_S):
            await world.link.remove_device(device.device_id)
            assert await raw.wait_closed()
        assert not world.link.is_connected(device.device_id)
        await world.wait_for_event(InboundDeviceDisconnected, device_id=device.device_id, reason="revoked")
        again = await world.open(connect_packet(device))
        assert await again.next_packet() == (0x20, b"\x00\x04")
        await bystander.send(b"\xc0\x00")
        assert await bystander.next_packet() == (0xD0, b"")


async def test_an_expelled_device_is_cut_even_while_it_waits_for_a_full_queue() -> None:
    async with broker(consume=False, inbound_bytes=4096, rate_per_second=0) as world:
        device = await world.device()
        raw = await world.login(device)
        for packet_id in range(1, 60):
            await raw.send(_telemetry(device, packet_id))
        await world.wait_for_stat("waited_queue_full", 1)
        async with asyncio.timeout(TIMEOUT_S):
            await world.link.remove_device(device.device_id)
            assert await raw.wait_closed()


def _telemetry(device, packet_id: int) -> bytes:
    return publish_packet(device.topic("telemetry"), b'{"t":1}', qos=1, packet_id=packet_id)


async def test_a_client_id_belongs_to_its_device() -> None:
    async with broker() as world:
        one, two = await world.device(), await world.device()
        first, second = await world.login(one, "same"), await world.login(two, "same")
        for raw in (first, second):
            await raw.send(b"\xc0\x00")
            assert await raw.next_packet() == (0xD0, b"")
        assert world.link.stats()["takeovers"] == 0


async def test_the_same_client_of_the_same_device_takes_over_without_an_offline_in_between() -> None:
    async with broker() as world:
        device = await world.device()
        async with world.client(device, will=aiomqtt.Will(device.topic("status"), b"offline", 1, True)):
            second = await world.login(device, "main")
            await world.wait_for_stat("takeovers", 1)
            await second.send(b"\xc0\x00")
            assert await second.next_packet() == (0xD0, b"")
            await world.wait_until(lambda: len(world.events_of(device)) >= 2)
            assert all(isinstance(event, InboundDeviceConnected) for event in world.events_of(device))
            assert world.link.is_connected(device.device_id)


async def test_a_device_is_gone_when_its_last_connection_is() -> None:
    async with broker() as world:
        device = await world.device()
        one, two = await world.login(device, "one"), await world.login(device, "two")
        await one.send(b"\xe0\x00")
        assert await one.wait_closed()
        assert world.link.is_connected(device.device_id)
        await two.close()
        await world.wait_for_event(InboundDeviceDisconnected, device_id=device.device_id, reason="lost")
        assert sum(isinstance(event, InboundDeviceDisconnected) for event in world.events_of(device)) == 1


async def test_a_connection_too_many_closes_the_one_that_was_silent_for_the_longest_time() -> None:
    async with broker(max_connections_per_device=2) as world:
        device = await world.device()
        forgotten, silent = await world.login(device, "a"), await world.login(device, "b")
        await forgotten.send(b"\xc0\x00")
        assert await forgotten.next_packet() == (0xD0, b"")
        newest = await world.login(device, "c")
        assert await silent.wait_closed()
        for alive in (forgotten, newest):
            await alive.send(b"\xc0\x00")
            assert await alive.next_packet() == (0xD0, b"")
        assert world.link.stats()["closed_evicted"] == 1
        assert not any(isinstance(event, InboundDeviceDisconnected) for event in world.events)


async def test_a_device_that_reboots_with_a_new_client_id_each_time_is_never_locked_out() -> None:
    async with broker() as world:
        device = await world.device()
        for number in range(20):
            await world.login(device, f"ESP-{number:06x}", will=(device.topic("status"), b"offline"))
        await world.wait_until(lambda: world.link.stats()["connections"] == 4)
        assert world.link.stats()["closed_evicted"] == 16
        assert not any(isinstance(event, InboundMessage) for event in world.events), "no will: the device is connected"


async def test_a_lost_device_leaves_its_will_and_one_that_says_goodbye_does_not() -> None:
    async with broker() as world:
        device = await world.device()
        will = aiomqtt.Will(device.topic("status"), b"offline", 1, True)
        async with world.client(device, will=will):
            pass
        await world.wait_for_event(InboundDeviceDisconnected, reason="disconnected")
        assert not any(isinstance(event, InboundMessage) for event in world.events)
        raw = await world.login(device, will=(device.topic("status"), b"offline"))
        await raw.close()
        lost = await world.wait_for_event(InboundDeviceDisconnected, reason="lost")
        status = await world.wait_for_event(InboundMessage, topic="status", payload=b"offline", retain=True)
        assert world.events.index(status) < world.events.index(lost)


async def test_a_silent_device_is_closed_after_one_and_a_half_keep_alives() -> None:
    async with broker() as world:
        device = await world.device()
        raw = await world.login(device, keep_alive=1)
        assert await raw.wait_closed()
        assert world.link.stats()["closed_keepalive"] == 1
        await world.wait_for_event(InboundDeviceDisconnected, reason="lost")


async def test_a_port_in_use_is_named() -> None:
    async with broker() as world:
        from adapters.mqtt.embedded import BrokerListenAddress, EmbeddedBrokerSettings, EmbeddedDeviceLink

        second = EmbeddedDeviceLink(EmbeddedBrokerSettings((BrokerListenAddress("tcp", "127.0.0.1", world.port),)))
        with pytest.raises(Unavailable, match=rf"127\.0\.0\.1:{world.port}.*LATCHBOARD_MQTT_"):
            await second.start()


async def test_stop_lets_every_device_go() -> None:
    async with broker() as world:
        devices = [await world.device() for _ in range(20)]
        raws = [await world.login(device) for device in devices]
        stranger = await world.open(b"")
        async with asyncio.timeout(TIMEOUT_S):
            await world.link.stop()
        for raw in [*raws, stranger]:
            assert await raw.wait_closed()
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection("127.0.0.1", world.port)


async def test_an_mqtt_5_client_receives_server_shutting_down() -> None:
    async with broker() as world:
        device = await world.device()
        codes: list[int] = []
        client = world.client(device, protocol=V5)
        async with asyncio.timeout(TIMEOUT_S):
            async with client:
                client._client.on_disconnect = lambda *args: codes.append(args[3].value)
                await world.link.stop()
                while not codes:
                    await asyncio.sleep(0.01)
        assert codes == [0x8B]
