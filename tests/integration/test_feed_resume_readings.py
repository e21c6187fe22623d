"""Resuming with a cursor: a client receives the readings that it missed, as the events that others received live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from domain.devices.model import Device
from domain.ingest.pipeline import assign_metric_numbers
from domain.ingest.results import EngineResultWriter, IngestResult
from domain.telemetry import replay
from domain.telemetry.reference_engine import PythonTelemetryBatch, ReferenceTelemetryEngine
from domain.telemetry.retention import RetentionPeriods, RetentionService
from support.feed_world import HOUR_MS, FeedListener, FeedWorld, feed_world
from support.storage import STORAGES
from support.webhook_world import webhook_world

DAY_S = 86_400


class Ingest:
    """Stores what devices report, as the program does. Every device is watched."""

    def __init__(self, feed: FeedWorld, commit_lock: asyncio.Lock) -> None:
        self.feed = feed
        self.world = feed.world
        self.commit_lock = commit_lock
        self.engine = ReferenceTelemetryEngine()
        commands: Any = None  # there are no rules
        self._service = EngineResultWriter(
            clock=self.world.clock, engine=self.engine, commands=commands, publisher=self.world.recorder
        )

    async def device(self) -> Device:
        device = await self.world.device()
        self.engine.set_watched(device.device_no, True)
        return device

    async def evaluate(self, device: Device, *, late_ms: int = 0, **values: Any) -> IngestResult:
        now_ms = self.world.clock.now_ms()
        payload = msgspec.json.encode({"ts": now_ms - late_ms, "m": values})
        await assign_metric_numbers(self.engine, self.world.uow, list(values))
        return IngestResult.of(self.engine.ingest(PythonTelemetryBatch.of([(device.device_no, now_ms, payload)])))

    async def store(self, result: IngestResult) -> None:
        async with self.world.uow.write() as tx:
            await self._service.store(tx, result)

    async def report(self, device: Device, *, late_ms: int = 0, **values: Any) -> None:
        async with self.commit_lock:
            await self.store(await self.evaluate(device, late_ms=late_ms, **values))

    async def newest_cursor(self, query: str) -> str:
        async with self.feed.client(query) as client:
            return str((await client.next())["cursor"])


@pytest.fixture(params=STORAGES)
async def ingest(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ingest]:
    lock = asyncio.Lock()
    async with webhook_world(request.param, tmp_path) as world, feed_world(world, commit_lock=lock) as feed:
        yield Ingest(feed, lock)


async def test_missed_readings_are_the_events_that_others_received(ingest: Ingest) -> None:
    device, query = await ingest.device(), f"?token={ingest.feed.callers.accept_token('ada')}"
    await ingest.report(device, level=1)
    cursor = await ingest.newest_cursor(query)
    async with ingest.feed.client(query) as other:
        await other.next()
        await ingest.report(device, level=2, open=True, mode="eco", warmth=-0.1)
        await ingest.report(device, late_ms=3 * HOUR_MS, level=3)
        live = [await other.next() for _ in range(5)]
    async with ingest.feed.client(f"{query}&cursor={cursor}") as client:
        assert (await client.next())["cursor"] == cursor
        missed = await readings_until(client, {event["eventId"] for event in live})
        await ingest.report(device, level=4)
        fresh = await client.next()
    assert all(missed[event["eventId"]] == without_cursor(event) for event in live)
    assert {reading["value"] for reading in missed.values()} >= {1.0, 2.0, 3.0, -0.1, None}
    assert fresh["value"] == 4


async def test_a_new_cursor_does_not_bring_old_readings_again(ingest: Ingest) -> None:
    device, query = await ingest.device(), f"?token={ingest.feed.callers.accept_token('ada')}"
    await ingest.report(device, level=1)
    cursor = await ingest.newest_cursor(query)
    async with ingest.feed.client(f"{query}&cursor={cursor}") as client:
        await client.next()
        assert (await client.next())["value"] == 1
        ingest.world.clock.forward(seconds=30)
        await ingest.report(device, level=2)
        cursor = (await client.next())["cursor"]
    async with ingest.feed.client(f"{query}&cursor={cursor}") as client:
        await client.next()
        assert (await client.next())["value"] == 2  # a few seconds are sent again
        assert await client.is_quiet()


async def test_a_clock_that_is_set_back_hides_no_reading(ingest: Ingest) -> None:
    device, query = await ingest.device(), f"?token={ingest.feed.callers.accept_token('ada')}"
    await ingest.report(device, level=1)
    cursor = await ingest.newest_cursor(query)
    ingest.world.clock.forward(seconds=-90)
    again = Ingest(ingest.feed, ingest.commit_lock)  # the service starts again
    await again.report(device, level=2)
    async with ingest.feed.client(f"{query}&cursor={cursor}") as client:
        await client.next()
        assert 2 in [(await client.next())["value"] for _ in range(2)]


async def test_a_reading_that_was_evaluated_before_the_subscription_is_not_missed(ingest: Ingest) -> None:
    """It was evaluated when nobody watched the device, so it is not published; it is in the replay, which waits for it."""
    device, query = await ingest.device(), f"?token={ingest.feed.callers.accept_token('ada')}"
    cursor = await ingest.newest_cursor(query)
    ingest.engine.set_watched(device.device_no, False)
    async with ingest.commit_lock:
        evaluated = await ingest.evaluate(device, level=1)
        client = ingest.feed.client(f"{query}&cursor={cursor}")
        listener = await client.__aenter__()
        assert (await listener.next())["type"] == "initial_state"
        assert await listener.is_quiet()
        await ingest.store(evaluated)
    assert (await listener.next())["value"] == 1
    await client.__aexit__(None, None, None)


async def test_a_key_gets_the_readings_of_its_devices_and_a_filter_holds(ingest: Ingest) -> None:
    seen, hidden, other = [await ingest.device() for _ in range(3)]
    key_id = await ingest.world.key()
    await ingest.world.grant(key_id, seen)
    await ingest.world.grant(key_id, other)
    query = f"?token={ingest.feed.callers.accept_key(key_id)}"
    cursor = await ingest.newest_cursor(query)
    for device in (hidden, other, seen):
        await ingest.report(device, level=device.device_no)
    for more, wanted in (("", {seen, other}), (f"&deviceId={seen.device_id}", {seen}), ("&types=relay_changed", set())):
        async with ingest.feed.client(f"{query}&cursor={cursor}{more}") as client:
            assert (await client.next())["type"] == "initial_state"
            assert {(await client.next())["deviceId"] for _ in wanted} == {device.device_id for device in wanted}
            assert await client.is_quiet()


@pytest.mark.parametrize("values", [{"a": 1}, {"a": 1, "b": 2, "c": 3}], ids=["many messages", "messages of many readings"])
async def test_too_many_missed_readings_are_answered_with_resync(
    ingest: Ingest, values: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MAX_READINGS", 6)
    device, query = await ingest.device(), f"?token={ingest.feed.callers.accept_token('ada')}"
    cursor = await ingest.newest_cursor(query)
    for _ in range(7 if len(values) == 1 else 3):
        ingest.world.clock.forward(seconds=0.01)  # equal messages of one moment are one message
        await ingest.report(device, **values)
    async with ingest.feed.client(f"{query}&cursor={cursor}") as client:
        assert [(await client.next())["type"] for _ in range(2)] == ["resync", "initial_state"]
        assert await client.is_quiet()


async def test_a_cursor_from_before_retention_is_too_old_for_readings_only(ingest: Ingest) -> None:
    device, query = await ingest.device(), f"?token={ingest.feed.callers.accept_token('ada', for_ms=9 * DAY_S * 1000)}"
    await ingest.report(device, late_ms=HOUR_MS, level=1)
    cursor = await ingest.newest_cursor(query)
    ingest.world.clock.forward(seconds=DAY_S + 120)
    await ingest.report(device, level=2)
    async with ingest.feed.client(f"{query}&cursor={cursor}") as client:
        assert (await client.next())["type"] == "initial_state"
    retention = RetentionService(uow=ingest.world.uow, clock=ingest.world.clock, periods=RetentionPeriods())
    async for _ in retention.purge_steps():
        pass
    async with ingest.feed.client(f"{query}&cursor={cursor}") as client:
        assert (await client.next())["type"] == "resync"
    async with ingest.feed.client(f"{query}&cursor={cursor}&types=relay_changed") as client:
        assert (await client.next())["type"] == "initial_state"


async def readings_until(client: FeedListener, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """The readings by their event id, until the wanted ones are among them."""
    found: dict[str, dict[str, Any]] = {}
    while not wanted <= set(found):
        event = await client.next()
        found[event["eventId"]] = without_cursor(event)
    return found


def without_cursor(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "cursor"}
