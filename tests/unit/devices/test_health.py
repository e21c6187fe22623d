"""What is told of a device's health: a wrong clock at once and without flooding anybody, an upload of older readings not at all, dropped
messages once an hour for a device and reason."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import pytest

from domain.devices import health
from domain.devices.health import ClockSkewService, DroppedMessageService
from domain.devices.model import FirmwareProfile
from domain.kernel.clock import HOUR_MS, MINUTE_MS
from domain.kernel.errors import Unavailable
from support.device_world import DeviceWorld


class Offsets:
    def __init__(self, world: DeviceWorld) -> None:
        self.world = world
        self.service = ClockSkewService(uow=world.uow, clock=world.clock)

    async def measure(self, device_no: int, offset_ms: int, after_ms: int = 0) -> list[object]:
        """The offsets told so far."""
        self.world.clock.forward(after_ms)
        self.service.on_offsets([(device_no, offset_ms)])
        await self.service.write_pending()
        return [event.data["clockOffsetMs"] for event in self.world.events_of_kind("device_clock_skew")]

    async def shown(self, device_no: int) -> int | None:
        async with self.world.uow.read() as tx:
            return (await tx.device_health.list_by_numbers({device_no}))[device_no].clock_offset_ms


async def test_a_clock_ahead_is_told_at_once_then_hourly_or_when_it_changes(world: DeviceWorld) -> None:
    offsets, device = Offsets(world), await world.device()
    no = device.device_no
    assert await offsets.measure(no, 120_000) == []
    assert await offsets.measure(no, HOUR_MS) == [HOUR_MS]
    assert await offsets.measure(no, HOUR_MS + 5_000, MINUTE_MS) == [HOUR_MS]
    assert await offsets.measure(no, 3 * HOUR_MS, 1_000) == [HOUR_MS, 3 * HOUR_MS]
    assert await offsets.measure(no, HOUR_MS, 1_000) == [HOUR_MS, 3 * HOUR_MS]  # at most once a minute
    assert len(await offsets.measure(no, HOUR_MS, MINUTE_MS)) == 3
    assert len(await offsets.measure(no, HOUR_MS, HOUR_MS)) == 4
    assert await offsets.shown(no) == HOUR_MS
    [event, *_] = world.events_of_kind("device_clock_skew")
    assert event.device_id == device.device_id
    assert event.description.startswith("The clock of the device is 60 min ahead")


async def test_a_clock_that_is_right_and_wrong_in_turn_is_told_once(world: DeviceWorld) -> None:
    offsets, no = Offsets(world), (await world.device()).device_no
    for _ in range(20):
        offsets.service.on_offsets([(no, HOUR_MS)], ahead=True)
        assert await offsets.measure(no, 0, 5_000) == [HOUR_MS]
    assert offsets.service.skewed_devices == 0
    assert await offsets.measure(no, 0, HOUR_MS) == [HOUR_MS]
    assert await offsets.measure(no, 2 * HOUR_MS) == [HOUR_MS, 2 * HOUR_MS]


async def test_a_clock_behind_is_told_when_it_stays_behind(world: DeviceWorld) -> None:
    offsets, no = Offsets(world), (await world.device()).device_no
    assert await offsets.measure(no, -HOUR_MS) == []
    assert await offsets.shown(no) == -HOUR_MS
    assert await offsets.measure(no, -HOUR_MS - 900, MINUTE_MS) == []
    assert await offsets.measure(no, -HOUR_MS, MINUTE_MS) == [-HOUR_MS]


async def test_an_upload_of_older_readings_is_no_clock_behind(world: DeviceWorld) -> None:
    offsets, no = Offsets(world), (await world.device()).device_no
    for minutes in range(60, 0, -2):
        assert await offsets.measure(no, -minutes * MINUTE_MS, MINUTE_MS) == []
    assert await offsets.measure(no, -300, MINUTE_MS) == []
    assert (await offsets.shown(no), offsets.service.skewed_devices) == (-300, 0)


async def test_a_wrong_clock_of_the_service_does_not_flood_the_log(world: DeviceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_EVENTS_PER_MINUTE", 2)
    offsets = Offsets(world)
    devices = [(await world.device()).device_no for _ in range(5)]
    offsets.service.on_offsets([(no, HOUR_MS) for no in (*devices, 999)], ahead=True)
    for told in (2, 4, 5):
        await offsets.service.write_pending()
        await offsets.service.write_pending()
        assert len(world.events_of_kind("device_clock_skew")) == told
        world.clock.forward(MINUTE_MS)
    assert offsets.service.skewed_messages == 6


async def test_a_small_change_of_the_offset_costs_no_write(world: DeviceWorld) -> None:
    offsets, no = Offsets(world), (await world.device()).device_no
    for offset_ms, shown in ((400, 400), (900, 400), (1_400, 1_400)):
        await offsets.measure(no, offset_ms)
        assert await offsets.shown(no) == shown


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
    data = {"reason": "TOO_MANY_METRICS", "count": 3, "topic": "telemetry"}
    assert (event.device_id, dict(event.data)) == (device.device_id, data)
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


async def test_the_event_and_the_log_name_topic_and_metric_and_the_device_by_its_id(world: DeviceWorld) -> None:
    device, logged = await world.device(profile=FirmwareProfile.SHELLY), []
    drops = DroppedMessageService(
        uow=world.uow, clock=world.clock, wake=world.wake_event, log=lambda of, drop: logged.append((of.device_id, drop.detail))
    )
    drops.count(device.device_no, "BAD_VALUE", 1, topic="status/sys", metric="sys.text", detail="1 values, such as sys.text")
    await drops.write_pending()
    [event] = world.events_of_kind("device_message_dropped")
    assert (event.data["topic"], event.data["metric"]) == ("status/sys", "sys.text")
    assert event.description.endswith("last: status/sys, sys.text")
    assert logged == [(device.device_id, "1 values, such as sys.text")]


async def test_topic_and_metric_are_told_although_the_database_was_away(world: DeviceWorld) -> None:
    """What was counted in the hour after an event is told with the next one, by another process perhaps."""
    device = await world.device()
    for metric in ("a", "b"):
        drops = service_of(world)
        drops.count(device.device_no, "BAD_VALUE", 1, metric=metric)
        await drops.write_pending()
    world.clock.ms += HOUR_MS
    drops = service_of(world)
    drops.count(device.device_no, "MALFORMED", 1, topic="state")
    await drops.write_pending()
    told = {
        (event.data["reason"], event.data["topic"], event.data.get("metric"))
        for event in world.events_of_kind("device_message_dropped")
    }
    assert told == {("BAD_VALUE", "telemetry", "a"), ("BAD_VALUE", "telemetry", "b"), ("MALFORMED", "state", None)}


async def test_memory_is_bounded(world: DeviceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_PENDING", 2)
    device, drops = await world.device(), service_of(world)
    for reason in ("A", "B", "C"):
        drops.count(device.device_no, reason, 1)
    await drops.write_pending()
    assert [event.data["reason"] for event in world.events_of_kind("device_message_dropped")] == ["A", "B"]
