"""The configuration of HAProxy in `deploy/cluster`, run before two stand-ins for instances: each device goes to one instance, and an
instance that is not ready loses its connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiomqtt
import pytest

from support.balancer import Balancer, require_haproxy
from support.ports import free_ports
from support.service import PORT_SETTINGS
from support.waiting import TIMEOUT_S

CONNACK = bytes((0x20, 2, 0, 0))
NAMES = [f"dev_{number}" for number in range(24)]


class StandIn:
    """Answers /readyz, and every CONNECT; `names` counts the user names."""

    def __init__(self) -> None:
        self.settings = dict(zip(PORT_SETTINGS, free_ports(len(PORT_SETTINGS)), strict=True))
        self.names: Counter[str] = Counter()
        self.is_ready = True
        self._answering: set[asyncio.Task[None]] = set()

    async def mqtt(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._answering.add(asyncio.current_task())  # type: ignore[arg-type]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            packet = await reader.read(1024)
            self.names.update(name for name in NAMES if packet.endswith(name.encode()))
            writer.write(CONNACK)
            await reader.read()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._answering.add(asyncio.current_task())  # type: ignore[arg-type]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            status = b"200 OK" if self.is_ready else b"503 Service Unavailable"
            writer.write(b"HTTP/1.0 " + status + b"\r\ncontent-length: 0\r\n\r\n")
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with (
            await asyncio.start_server(self.mqtt, "127.0.0.1", self.settings["LATCHBOARD_MQTT_PORT"]),
            await asyncio.start_server(self.http, "127.0.0.1", self.settings["LATCHBOARD_HTTP_PORT"]),
        ):
            yield
        await asyncio.gather(*self._answering)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[SimpleNamespace]:
    require_haproxy()
    ports = dict(zip(PORT_SETTINGS, free_ports(len(PORT_SETTINGS)), strict=True))
    first, second = StandIn(), StandIn()
    instances: Any = [first, second]
    balancer = Balancer(tmp_path, ports, instances)
    async with first.serving(), second.serving():
        balancer.start()
        try:
            yield SimpleNamespace(first=first, second=second, port=ports["LATCHBOARD_MQTT_PORT"], balancer=balancer)
        finally:
            balancer.stop()


def client(port: int, name: str) -> aiomqtt.Client:
    return aiomqtt.Client("127.0.0.1", port, username=name, identifier=name, protocol=aiomqtt.ProtocolVersion.V311, timeout=5)


async def connect(port: int, name: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with contextlib.suppress(aiomqtt.MqttError):
                async with client(port, name):
                    return
            await asyncio.sleep(0.1)


async def test_haproxy_accepts_the_configuration_without_a_warning(pair: SimpleNamespace) -> None:
    assert "valid" in pair.balancer.check()
    assert "WARNING" not in pair.balancer.check()


async def test_each_device_goes_to_one_instance_and_both_have_some(pair: SimpleNamespace) -> None:
    await connect(pair.port, NAMES[0])
    for _ in range(3):
        await asyncio.gather(*[connect(pair.port, name) for name in NAMES])
    assert not pair.first.names.keys() & pair.second.names.keys()
    assert min(len(pair.first.names), len(pair.second.names)) >= len(NAMES) // 6
    assert pair.first.names.keys() | pair.second.names.keys() == set(NAMES)


async def test_an_instance_that_is_not_ready_loses_its_connections_and_its_devices_go_to_the_other(pair: SimpleNamespace) -> None:
    await asyncio.gather(*[connect(pair.port, name) for name in NAMES])
    name = next(iter(pair.first.names))
    with pytest.raises(aiomqtt.MqttError):
        async with asyncio.timeout(TIMEOUT_S), client(pair.port, name) as held:
            pair.first.is_ready = False
            async for _ in held.messages:
                pass
    await connect(pair.port, name)
    assert pair.second.names[name] == 1
