"""What was dropped is told once an hour for a device and reason, survives a database that is away, and stays bounded."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import pytest

from domain.devices import health
from domain.devices.health import DroppedMessageService
from domain.kernel.clock import HOUR_MS
from domain.kernel.errors import Unavailable
from support.device_world import DeviceWorld


def service_of(world: DeviceWorld, uow: Any = None) -> DroppedMessageService:
    return DroppedMessageService(uow=uow or world.uow, clock=world.clock, wake=world.wake_event)


async def test_an_event_tells_reason_and_count_and_the_next_one_comes_an_hour_later(world: DeviceWorld) -> None:
    device = await world.device()
    for _ in range(2):  # the second service is what a restart gives
        drops = service_of(world)
        drops.count(device.device_no, "TOO_MANY_METRICS", 2)
        drops.count(device.device_no, "TOO_MANY_METRICS", 1)
        drops.count(999, "MALFORMED", 1)
        await drops.write_pending()
    [event] = world.events_of_kind("device_message_dropped")
    assert (event.device_id, dict(event.data)) == (device.device_id, {"reason": "TOO_MANY_METRICS", "count": 3})
    assert "128 metrics" in event.description
    world.clock.ms += HOUR_MS
    drops.count(device.device_no, "TOO_MANY_METRICS", 1)
    await drops.write_pending()
    assert [event.data["count"] for event in world.events_of_kind("device_message_dropped")] == [3, 4]


async def test_drops_are_written_later_when_the_database_is_away(world: DeviceWorld) -> None:
    device, is_away = await world.device(), [True]

    class Away:
        @asynccontextmanager
        async def write(self, caller: Any = None) -> Any:
            if is_away.pop():
                drops.count(device.device_no, "MALFORMED", 1)
                raise Unavailable("away")
            async with world.uow.write() as tx:
                yield tx

    drops = service_of(world, Away())
    drops.count(device.device_no, "MALFORMED", 2)
    with pytest.raises(Unavailable):
        await drops.write_pending()
    is_away.append(False)
    await drops.write_pending()
    assert [event.data["count"] for event in world.events_of_kind("device_message_dropped")] == [3]


async def test_memory_is_bounded(world: DeviceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_PENDING", 2)
    device, drops = await world.device(), service_of(world)
    for reason in ("A", "B", "C"):
        drops.count(device.device_no, reason, 1)
    await drops.write_pending()
    assert [event.data["reason"] for event in world.events_of_kind("device_message_dropped")] == ["A", "B"]
