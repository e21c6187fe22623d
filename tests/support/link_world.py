"""A device link over a real broker, with real MQTT clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiomqtt

from adapters.engine import _native
from adapters.mqtt.embedded import BrokerListenAddress, EmbeddedBrokerSettings, EmbeddedDeviceLink
from adapters.mqtt.external import MosquittoDeviceLink
from adapters.mqtt.external_connection import MosquittoConnectionSettings
from adapters.mqtt.mosquitto import MosquittoCredentialStore
from domain.devices.link import DeviceBrokerLink, InboundEvent
from support.broker import BrokerDevice, new_device
from support.mosquitto import mosquitto
from support.waiting import TIMEOUT_S


class StillClock:
    def now_ms(self) -> int:
        return 1_800_000_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms()

    def steady_ms(self) -> int:
        return self.now_ms()


@dataclass
class World:
    link: DeviceBrokerLink
    port: int
    ws_port: int
    events: list[InboundEvent] = field(default_factory=list)
    telemetry: int = 0

    async def device(self, profile: str = "native") -> BrokerDevice:
        device = new_device(profile)
        await self.link.upsert_credentials(device.device_id, device.number, device.password, profile)
        return device

    def client(self, device: BrokerDevice, **options: Any) -> aiomqtt.Client:
        options = {"port": self.port, "identifier": device.device_id, "timeout": TIMEOUT_S, **options}
        return aiomqtt.Client("127.0.0.1", username=device.device_id, password=device.password, **options)

    @contextlib.asynccontextmanager
    async def present(self, device: BrokerDevice, *filters: str, **options: Any) -> AsyncIterator[aiomqtt.Client]:
        """The device as its firmware does it: subscribe, then say that it is online."""
        options.setdefault("will", aiomqtt.Will(device.topic("status"), b"offline", 1, True))
        async with self.client(device, **options) as client:
            for each in filters:
                await client.subscribe(device.topic(each), qos=1)
            await client.publish(device.topic("status"), b"online", qos=1, retain=True)
            await self.until(lambda: self.link.is_connected(device.device_id))
            yield client

    async def consume(self) -> None:
        while True:
            batch = await self.link.receive(100)
            self.events.extend(batch.events)
            self.telemetry += len(batch.telemetry)
            batch.ack()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0.01)

    async def event(self, kind: type[InboundEvent], **fields: Any) -> Any:
        def found() -> list[InboundEvent]:
            return [
                event
                for event in self.events
                if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items())
            ]

        await self.until(lambda: bool(found()))
        return found()[0]


@contextlib.asynccontextmanager
async def embedded() -> AsyncIterator[World]:
    link = EmbeddedDeviceLink(
        EmbeddedBrokerSettings((BrokerListenAddress("tcp", "127.0.0.1", 0), BrokerListenAddress("ws", "127.0.0.1", 0)))
    )
    await link.start()
    tcp, ws = link.ports()
    yield World(link, tcp, ws)


@contextlib.asynccontextmanager
async def external(folder: Any) -> AsyncIterator[World]:
    async with mosquitto(folder, "latchboard") as broker:
        settings = MosquittoConnectionSettings("127.0.0.1", broker.port, "latchboard", "s" * 32)
        provisioner = MosquittoCredentialStore(broker.files, "latchboard", "s" * 32)
        link = MosquittoDeviceLink(settings, StillClock(), _native.RawTelemetryBatch, provisioner)
        await link.start()
        yield World(link, broker.port, broker.ws_port)


@contextlib.asynccontextmanager
async def open_world(kind: str, folder: Any) -> AsyncIterator[World]:
    """Nobody takes what comes up."""
    async with embedded() if kind == "embedded" else external(folder) as world:
        yield world
        await world.link.stop()


@contextlib.asynccontextmanager
async def consuming(world: World) -> AsyncIterator[World]:
    task = asyncio.create_task(world.consume())
    yield world
    task.cancel()
    await asyncio.wait([task])


async def received(client: aiomqtt.Client) -> aiomqtt.Message:
    return await asyncio.wait_for(anext(aiter(client.messages)), TIMEOUT_S)
