"""An external broker lives on while the service is down. At the next start it is brought in line with who may connect by then."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import aiomqtt
import pytest

from adapters.engine import _native
from adapters.mqtt.external import MosquittoDeviceLink
from adapters.mqtt.external_connection import MosquittoConnectionSettings
from adapters.mqtt.mosquitto import MosquittoCredentialStore
from support.broker import BrokerDevice, new_device
from support.mosquitto import Mosquitto, mosquitto
from support.waiting import TIMEOUT_S


class StillClock:
    def now_ms(self) -> int:
        return 1_800_000_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms()

    def steady_ms(self) -> int:
        return self.now_ms()


async def started(broker: Mosquitto, *devices: BrokerDevice) -> MosquittoDeviceLink:
    """The service as it starts: every device that may connect, then the link."""
    settings = MosquittoConnectionSettings("127.0.0.1", broker.port, "latchboard", "s" * 32)
    link = MosquittoDeviceLink(
        settings, StillClock(), _native.RawTelemetryBatch, MosquittoCredentialStore(broker.files, "latchboard", "s" * 32)
    )
    for device in devices:
        await link.upsert_credentials(device.device_id, device.number, device.password, "native")
    await link.start()
    return link


def client(broker: Mosquitto, device: BrokerDevice) -> aiomqtt.Client:
    login = {"username": device.device_id, "password": device.password, "identifier": device.device_id}
    return aiomqtt.Client("127.0.0.1", broker.port, timeout=TIMEOUT_S, **login)


async def cut(gone: aiomqtt.Client) -> None:
    with contextlib.suppress(aiomqtt.MqttError):
        async for _ in gone.messages:
            pass


async def test_a_device_revoked_while_the_service_was_down_is_disconnected_at_its_start(tmp_path: Path) -> None:
    kept, shut_out = new_device(), new_device()
    async with mosquitto(tmp_path, "latchboard") as broker, contextlib.AsyncExitStack() as online:
        link = await started(broker, kept, shut_out)
        with contextlib.suppress(aiomqtt.MqttError):
            leaving = await online.enter_async_context(client(broker, shut_out))
            await link.stop()
            await leaving.publish(shut_out.topic("telemetry"), b"{}", qos=1)
            link = await started(broker, kept)
            await asyncio.wait_for(cut(leaving), TIMEOUT_S)
        with pytest.raises(aiomqtt.MqttError):
            async with client(broker, shut_out):
                pass
        async with client(broker, kept) as staying:
            await staying.publish(kept.topic("telemetry"), b'{"t":1}', qos=1)
            async with asyncio.timeout(TIMEOUT_S):
                while not len((batch := await link.receive(10)).telemetry):
                    batch.ack()
        await link.stop()


async def test_messages_sent_while_the_service_was_down_are_received_at_its_start(tmp_path: Path) -> None:
    device = new_device()
    async with mosquitto(tmp_path, "latchboard") as broker:
        link = await started(broker, device)
        await link.stop()
        async with client(broker, device) as line:
            for number in range(5):
                await line.publish(device.topic("telemetry"), b'{"n":%d}' % number, qos=1)
        link = await started(broker, device)
        received: list[bytes] = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(received) < 5:
                batch = await link.receive(10)
                received += [payload for _, _, payload in batch.telemetry.messages()]  # type: ignore[attr-defined]
                batch.ack()
        assert received == [b'{"n":%d}' % number for number in range(5)]
        await link.stop()


@pytest.mark.parametrize("closes", [False, True], ids=["silent", "closes"])
async def test_a_broker_without_mqtt_5_is_told_as_what_it_may_be(closes: bool) -> None:
    """RabbitMQ before 3.13 takes the connection, and does not answer a CONNECT of MQTT 5."""

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1_024):
            if closes:
                break
        writer.close()

    server = await asyncio.start_server(ignore, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = MosquittoDeviceLink(
        MosquittoConnectionSettings("127.0.0.1", port, "latchboard", "s" * 32), StillClock(), _native.RawTelemetryBatch, None
    )
    try:
        await link.start()
        async with asyncio.timeout(TIMEOUT_S):
            while "RabbitMQ from 3.13" not in (link.connection_problem() or ""):
                await asyncio.sleep(0.05)
        assert f"127.0.0.1:{port}" in (link.connection_problem() or "")
    finally:
        await link.stop()
        server.close()
