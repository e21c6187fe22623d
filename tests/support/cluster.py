"""Two instances of a cluster on one PostgreSQL and one set of NATS nodes, and devices that connect to either."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiomqtt
import pytest

from support.device import Device, DeviceConnection, create_device
from support.empty_database import empty_postgres
from support.nats import NatsNodes
from support.service import Service
from support.waiting import TIMEOUT_S

PARTITIONS = 8


@contextlib.contextmanager
def service_pair(nodes: NatsNodes, folders: pytest.TempPathFactory, **more: Any) -> Iterator[tuple[Service, Service]]:
    asyncio.run(nodes.delete_streams())
    shared = {
        "LATCHBOARD_DATABASE_URL": asyncio.run(empty_postgres()),
        "LATCHBOARD_SECRET_KEYS": "shared:" + base64.b64encode(b"k" * 32).decode(),
        "LATCHBOARD_CLUSTER": nodes.url,
        "LATCHBOARD_CLUSTER_MONITOR": nodes.monitor_url,
        "LATCHBOARD_CLUSTER_PARTITIONS": PARTITIONS,
        "LATCHBOARD_CLUSTER_LOG_MIB": 8,
        "LATCHBOARD_INGEST_LIMIT": 0,
        **more,
    }
    with Service(folders.mktemp("first"), **shared) as first, Service(folders.mktemp("second"), **shared) as second:
        yield first, second


def at(device: Device, service: Service) -> Device:
    """Act as a load balancer: the device's next connection goes to this instance."""
    device.credentials["mqttPort"] = service.mqtt_port
    return device


async def several_devices(service: Service, count: int = 6) -> list[Device]:
    """Enough of them that each instance owns some."""
    async with service.api() as owner:
        return [await create_device(owner, name=f"Pump {number}") for number in range(count)]


@contextlib.asynccontextmanager
async def online_at(device: Device, service: Service, **options: Any) -> AsyncIterator[DeviceConnection]:
    """Connected to this instance, which learns of a new device a moment after the one that registered it."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                async with at(device, service).client(service):
                    break
            except aiomqtt.MqttError:
                await asyncio.sleep(0.05)
    async with device.online(service, **options) as line:
        yield line
