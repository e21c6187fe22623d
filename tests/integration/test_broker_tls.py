"""MQTT and MQTT over WebSocket inside TLS; a certificate that cannot be used is named at the start."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiomqtt
import pytest

from adapters.mqtt.embedded import BrokerListenAddress, EmbeddedBrokerSettings, EmbeddedDeviceLink
from domain.kernel.errors import Unavailable
from support.broker import connect_packet, new_device
from support.certificate import certificate


@pytest.mark.parametrize("transport", ["tcp", "websockets"])
async def test_a_device_comes_in_over_tls_and_a_plain_one_does_not(transport: str, tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    listener = BrokerListenAddress("ws" if transport == "websockets" else "tcp", "127.0.0.1", 0, tls=True)
    link = EmbeddedDeviceLink(EmbeddedBrokerSettings((listener,), chain, key))
    await link.start()
    try:
        device = new_device()
        await link.upsert_credentials(device.device_id, device.number, device.password, "native")
        options = {"port": link.ports()[0], "username": device.device_id, "password": device.password}
        context = ssl.create_default_context(cafile=chain)
        async with aiomqtt.Client("127.0.0.1", transport=transport, tls_context=context, **options) as client:
            sent = client.publish(device.topic("telemetry"), b"{}", qos=1)
            taken = 0
            pending = asyncio.ensure_future(sent)
            while not taken:
                batch = await link.receive(10)
                taken += len(batch.telemetry)
                batch.ack()
            await pending
        reader, writer = await asyncio.open_connection("127.0.0.1", link.ports()[0])
        writer.write(connect_packet(device))
        assert (await asyncio.wait_for(reader.read(100), 10))[:1] in (b"", b"\x15"), "closed, or a TLS alert"
        writer.close()
        await writer.wait_closed()
    finally:
        await link.stop()


async def test_a_certificate_that_cannot_be_used_is_named_at_the_start(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    listeners = (BrokerListenAddress("tcp", "127.0.0.1", 0, tls=True),)
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("not a certificate", encoding="utf-8")
    for settings, complaint in [
        (EmbeddedBrokerSettings(listeners), "needs a certificate and a key"),
        (EmbeddedBrokerSettings(listeners, chain, tmp_path / "missing.pem"), "missing.pem"),
        (EmbeddedBrokerSettings(listeners, chain, garbage), "key file is not PEM"),
        (EmbeddedBrokerSettings(listeners, garbage, key), "TLS certificate"),
    ]:
        with pytest.raises(Unavailable, match=complaint):
            await EmbeddedDeviceLink(settings).start()
