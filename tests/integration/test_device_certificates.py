"""Devices that identify themselves by a certificate: the broker asks for it, and the name in it is the device."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from adapters.crypto.certificates import CertificateAuthority, PemCertificateAndKey
from adapters.mqtt.embedded import BrokerListenAddress, EmbeddedBrokerSettings, EmbeddedDeviceLink
from domain.devices.link import InboundMessagesDropped
from domain.devices.model import RefusalReason
from domain.kernel.errors import Unavailable
from support.broker import BrokerDevice, connect_packet, new_device
from support.waiting import TIMEOUT_S

NOW = datetime.now(UTC)
CONNECTED = b"\x20\x02\x00\x00"


@dataclass
class Plant:
    folder: Path
    authority: CertificateAuthority
    link: EmbeddedDeviceLink
    device: BrokerDevice

    def context(self, pair: PemCertificateAndKey | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        if pair is not None:
            chain = self.folder / "client.pem"
            chain.write_bytes(pair.certificate + pair.key)
            context.load_cert_chain(chain)
        return context

    def client(self, pair: PemCertificateAndKey | None, **options: Any) -> aiomqtt.Client:
        return aiomqtt.Client(
            "127.0.0.1", port=self.link.ports()[0], tls_context=self.context(pair), timeout=TIMEOUT_S, **options
        )

    async def comes_in(self, pair: PemCertificateAndKey | None, device: BrokerDevice) -> bool:
        """With the name and password of `device`."""
        port, context = self.link.ports()[0], self.context(pair)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except OSError:
            return False
        try:
            writer.write(connect_packet(device))
            async with asyncio.timeout(TIMEOUT_S):
                return await reader.read(4) == CONNECTED
        except OSError:
            return False
        finally:
            writer.close()


@pytest.fixture
async def plant(tmp_path: Path) -> AsyncIterator[Plant]:
    authority = CertificateAuthority.create("Plant", NOW)
    (tmp_path / "ca.pem").write_bytes(authority.to_pem().certificate)
    server = authority.issue_server(["127.0.0.1", "localhost"], NOW, 30)
    (tmp_path / "server.pem").write_bytes(server.certificate)
    (tmp_path / "server-key.pem").write_bytes(server.key)
    settings = EmbeddedBrokerSettings(
        (BrokerListenAddress("tcp", "127.0.0.1", 0, tls=True),),
        tmp_path / "server.pem",
        tmp_path / "server-key.pem",
        tmp_path / "ca.pem",
    )
    link, device = EmbeddedDeviceLink(settings), new_device()
    await link.start()
    await link.upsert_credentials(device.device_id, device.number, device.password, "native")
    yield Plant(tmp_path, authority, link, device)
    await link.stop()


async def test_the_name_in_the_certificate_is_the_device_and_no_password_is_needed(plant: Plant) -> None:
    pair = plant.authority.issue_device(plant.device.device_id, NOW, 30)
    async with plant.client(pair) as client:
        assert plant.link.is_connected(plant.device.device_id)
        await client.subscribe(plant.device.topic("cmd"), qos=1)
    assert await plant.comes_in(pair, replace(plant.device, password="another"))


async def test_a_certificate_is_for_its_own_device_only(plant: Plant) -> None:
    other = new_device()
    await plant.link.upsert_credentials(other.device_id, other.number, other.password, "native")
    pair = plant.authority.issue_device(plant.device.device_id, NOW, 30)
    assert not await plant.comes_in(pair, other)
    assert not await plant.comes_in(plant.authority.issue_device("dev_unknown", NOW, 30), plant.device)
    assert not plant.link.is_connected(other.device_id)


async def test_the_username_of_another_beside_a_certificate_is_told_of_the_device_that_the_certificate_names(
    plant: Plant,
) -> None:
    other = new_device()
    await plant.link.upsert_credentials(other.device_id, other.number, other.password, "native")
    assert not await plant.comes_in(plant.authority.issue_device(plant.device.device_id, NOW, 30), other)
    async with asyncio.timeout(TIMEOUT_S):
        batch = await plant.link.receive(100)
    [told] = [event for event in batch.events if isinstance(event, InboundMessagesDropped)]
    assert (told.device_id, told.reason) == (plant.device.device_id, RefusalReason.OTHER_USERNAME)


async def test_without_a_certificate_of_the_authority_nobody_comes_in_not_even_with_the_password(plant: Plant) -> None:
    stranger = CertificateAuthority.create("Plant", NOW)
    expired = plant.authority.issue_device(plant.device.device_id, NOW - timedelta(days=40), 30)
    a_server = plant.authority.issue_server([plant.device.device_id.replace("_", "-")], NOW, 30)
    for pair in (None, stranger.issue_device(plant.device.device_id, NOW, 30), expired, a_server):
        assert not await plant.comes_in(pair, plant.device)


async def test_a_revoked_device_is_out_at_once_and_its_certificate_does_not_help(plant: Plant) -> None:
    pair = plant.authority.issue_device(plant.device.device_id, NOW, 30)
    async with asyncio.timeout(TIMEOUT_S):
        try:
            async with plant.client(pair) as client:
                await plant.link.remove_device(plant.device.device_id)
                async for _ in client.messages:
                    raise AssertionError("a message after the end")
        except aiomqtt.MqttError:
            pass
    assert not plant.link.is_connected(plant.device.device_id)
    assert not await plant.comes_in(pair, plant.device)


async def test_an_authority_that_cannot_be_used_is_named_at_the_start(plant: Plant) -> None:
    garbage = plant.folder / "garbage.pem"
    garbage.write_text("not a certificate", encoding="utf-8")
    files = (plant.folder / "server.pem", plant.folder / "server-key.pem")
    for client_ca in (garbage, plant.folder / "missing.pem"):
        settings = EmbeddedBrokerSettings((BrokerListenAddress("tcp", "127.0.0.1", 0, tls=True),), *files, client_ca)
        with pytest.raises(Unavailable, match=r"client CA|missing\.pem"):
            await EmbeddedDeviceLink(settings).start()
