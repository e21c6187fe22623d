"""A running embedded broker with devices, and a client that sends exactly the bytes of a test."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiomqtt

from adapters.mqtt.embedded import BrokerLimits, BrokerListenAddress, EmbeddedBrokerSettings, EmbeddedDeviceLink
from domain.devices.link import InboundEvent
from support.waiting import TIMEOUT_S

T = TypeVar("T", bound=InboundEvent)
_numbers = itertools.count(1)


@dataclass
class BrokerDevice:
    device_id: str
    number: int
    password: str
    profile: str = "native"

    def topic(self, below: str) -> str:
        return f"devices/{self.device_id}/{below}"


def new_device(profile: str = "native") -> BrokerDevice:
    number = next(_numbers)
    return BrokerDevice(f"dev_{number:020d}", number, f"{number:032d}", profile)


@dataclass
class BrokerWorld:
    """The link and all messages received through it. `consume` acknowledges them; nothing else does."""

    link: EmbeddedDeviceLink
    ports: list[int]
    events: list[InboundEvent] = field(default_factory=list)
    telemetry: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _raw_connections: list[RawMqttConnection] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.ports[0]

    async def device(self, profile: str = "native") -> BrokerDevice:
        device = new_device(profile)
        await self.link.upsert_credentials(device.device_id, device.number, device.password, device.profile)
        return device

    def client(self, device: BrokerDevice, **options: Any) -> aiomqtt.Client:
        options = {"port": self.port, "identifier": "main", "timeout": TIMEOUT_S, **options}
        return aiomqtt.Client("127.0.0.1", username=device.device_id, password=device.password, **options)

    async def open(self, first: bytes) -> RawMqttConnection:
        """A socket on which these bytes have been sent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(first)
        raw = RawMqttConnection(reader, writer)
        self._raw_connections.append(raw)
        return raw

    async def login(self, device: BrokerDevice, client_id: str = "raw", **options: Any) -> RawMqttConnection:
        raw = await self.open(connect_packet(device, client_id, **options))
        head, body = await raw.next_packet()
        assert (head, body[1]) == (0x20, 0)
        raw.resumed = body[0] == 1
        return raw

    async def close_raw_connections(self) -> None:
        for raw in self._raw_connections:
            await raw.close()

    async def consume(self) -> None:
        while True:
            batch = await self.link.receive(500)
            self.events.extend(batch.events)
            self.telemetry += len(batch.telemetry)
            batch.ack()
            self._changed.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                self._changed.clear()
                with_poll = asyncio.create_task(self._changed.wait())
                await asyncio.wait([with_poll], timeout=0.02)
                with_poll.cancel()

    async def wait_for_event(self, kind: type[T], **fields: Any) -> T:
        """The first event of this kind with these fields, waiting for it."""

        def found() -> T | None:
            for event in self.events:
                if isinstance(event, kind) and all(getattr(event, k) == v for k, v in fields.items()):
                    return event
            return None

        await self.wait_until(lambda: found() is not None)
        event = found()
        assert event is not None
        return event

    def events_of(self, device: BrokerDevice) -> list[InboundEvent]:
        return [event for event in self.events if event.device_id == device.device_id]

    async def wait_for_stat(self, name: str, at_least: int) -> None:
        await self.wait_until(lambda: self.link.stats()[name] >= at_least)


@contextlib.asynccontextmanager
async def broker(*, consume: bool = True, **limits: Any) -> AsyncIterator[BrokerWorld]:
    listeners = (BrokerListenAddress("tcp", "127.0.0.1", 0), BrokerListenAddress("ws", "127.0.0.1", 0))
    link = EmbeddedDeviceLink(EmbeddedBrokerSettings(listeners, limits=BrokerLimits(**limits)))
    await link.start()
    world = BrokerWorld(link, list(link.ports()))
    task = asyncio.create_task(world.consume()) if consume else None
    try:
        yield world
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await world.close_raw_connections()
        await link.stop()


def _text(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack(">H", len(raw)) + raw


def _frame(head: int, body: bytes) -> bytes:
    length, rest = b"", len(body)
    while True:
        rest, low = divmod(rest, 128)
        length += bytes([low | (0x80 if rest else 0)])
        if not rest:
            return bytes([head]) + length + body


def connect_packet(
    device: BrokerDevice,
    client_id: str = "raw",
    *,
    clean: bool = True,
    keep_alive: int = 60,
    will: tuple[str, bytes] | None = None,
) -> bytes:
    flags = 0xC0 | (0x02 if clean else 0) | (0x2C if will else 0)
    body = _text("MQTT") + bytes([4, flags]) + struct.pack(">H", keep_alive) + _text(client_id)
    if will:
        body += _text(will[0]) + _text(will[1])
    return _frame(0x10, body + _text(device.device_id) + _text(device.password))


def subscribe_packet(*filters: str, packet_id: int = 1) -> bytes:
    return _frame(0x82, struct.pack(">H", packet_id) + b"".join(_text(each) + b"\x01" for each in filters))


def publish_packet(topic: str, payload: bytes, *, qos: int = 0, packet_id: int = 1, dup: bool = False) -> bytes:
    head = 0x30 | qos << 1 | (0x08 if dup else 0)
    return _frame(head, _text(topic) + (struct.pack(">H", packet_id) if qos else b"") + payload)


@dataclass
class RawMqttConnection:
    """An MQTT 3.1.1 connection that sends and reads raw packets."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    resumed: bool = False

    async def send(self, packet: bytes) -> None:
        self.writer.write(packet)
        await self.writer.drain()

    async def next_packet(self) -> tuple[int, bytes]:
        """The next packet (first byte, body). Raises IncompleteReadError once the broker has closed."""
        async with asyncio.timeout(TIMEOUT_S):
            head = (await self.reader.readexactly(1))[0]
            length = shift = 0
            while True:
                byte = (await self.reader.readexactly(1))[0]
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    return head, await self.reader.readexactly(length)

    async def wait_closed(self) -> bool:
        """Whether the broker closes the connection; what it still sends is discarded."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            return True
        return True

    async def close(self) -> None:
        """Close the socket without DISCONNECT."""
        self.writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(self.writer.wait_closed(), TIMEOUT_S)
