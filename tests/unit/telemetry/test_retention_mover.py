"""Moving old readings to a store loses none, doubles none, and changes no answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.workers.retention import OldReadingMoverWorker
from domain.devices.lookup import save_device
from domain.devices.model import Device, DeviceLifecycleAction
from domain.events.feed_model import FeedFilter
from domain.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS
from domain.kernel.errors import Unavailable
from domain.telemetry import history
from domain.telemetry.downsampling import DownsamplingQueryService
from domain.telemetry.history import ReadingHistory, TelemetryQueryService, moved_before_ms
from domain.telemetry.model import HistoryTimeRange
from domain.telemetry.packing import pack_readings, row_digest
from domain.telemetry.reference_engine import ReferenceTelemetryEngine
from domain.telemetry.replay import FeedReadingReplayService
from domain.telemetry.retention import OldReadingMover, RetentionPeriods, RetentionService
from support.clickhouse import MemoryReadingStore
from support.telemetry_world import TelemetryWorld

ALL = HistoryTimeRange(0, 2**50)
DAYS = 2


class MovedWorld(TelemetryWorld):
    """The database keeps two days; a store has the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.older = MemoryReadingStore()
        self.mover = OldReadingMover(uow=self.uow, clock=self.clock, store=self.older, days=DAYS, messages_per_step=7)
        shared: dict[str, Any] = {"uow": self.uow, "clock": self.clock, "engine": self.engine, "authorizer": self.gate}
        stored = ReadingHistory(store=self.older, moved_before_ms=self.moved_before_ms)
        self.both = TelemetryQueryService(**shared, create_engine=ReferenceTelemetryEngine, stored=stored)
        self.both_by_time = DownsamplingQueryService(**shared, stored=stored)

    def moved_before_ms(self) -> int:
        return moved_before_ms(self.clock.now_ms(), DAYS)

    async def move(self) -> int:
        return sum([moved async for moved in self.mover.move_steps()])

    async def in_database(self, device: Device) -> int:
        async with self.uow.read() as tx:
            return len(await tx.readings.list_between(device.device_no, 0, 2**50, 10_000))

    async def complete_rollups(self) -> None:
        while await self.rollups.run_once():
            pass

    async def history(
        self, device: Device, span: HistoryTimeRange = ALL, metric: str | None = None, limit: int = 1_000
    ) -> list[Any]:
        found, _ = await self.both.history(self.session(), device.device_id, span, metric=metric, limit=limit)
        return found

    async def reported(self, days: int = 4) -> Device:
        """A device that reported every two hours for so many days, the last time just now."""
        device = await self.device()
        for number in range(days * 12):
            await self.report(device, temperature=number + 0.5, mode="eco" if number % 3 else "hot", on=bool(number % 2))
            self.clock.forward(2 * HOUR_MS - 1_000)
        await self.complete_rollups()
        return device


@pytest.fixture
async def moved() -> MovedWorld:
    world = MovedWorld()
    await world.populate()
    return world


async def answers(
    world: MovedWorld, queries: TelemetryQueryService, by_time: DownsamplingQueryService, device: Device
) -> list[Any]:
    caller, now_ms = world.session(), world.clock.now_ms()
    spans = [
        ALL,
        HistoryTimeRange(now_ms - 3 * DAY_MS, now_ms - DAY_MS),
        HistoryTimeRange(0, now_ms - 3 * DAY_MS),
        HistoryTimeRange(now_ms, 2**50),
    ]
    found: list[Any] = []
    for span in spans:
        for metric in (None, "temperature", "mode", "unknown"):
            for limit in (1, 20, 1_000):
                readings, _ = await queries.history(caller, device.device_id, span, metric=metric, limit=limit)
                found.append(readings)
            pages = [page async for page in queries.export(caller, device.device_id, span, metric=metric)]
            found.append([reading for page in pages for reading in page])
        for step_ms in (30 * MINUTE_MS, 7 * HOUR_MS):
            found.append(
                await by_time.query_buckets(caller, device.device_id, span, metric="temperature", step_ms=step_ms, limit=100)
            )
    return found


@pytest.mark.parametrize("page", [1, 3, 250])
async def test_every_answer_is_the_same_after_the_move(moved: MovedWorld, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    monkeypatch.setattr(history, "PAGE_MESSAGES", page)
    monkeypatch.setattr(history, "EXPORT_PAGE_MESSAGES", page)
    device = await moved.reported()
    before = await answers(moved, moved.telemetry, moved.downsampling, device)
    assert await answers(moved, moved.both, moved.both_by_time, device) == before
    assert await moved.move() > 0
    assert await moved.in_database(device) < len(moved.older.rows) + await moved.in_database(device) == 48
    assert await answers(moved, moved.both, moved.both_by_time, device) == before
    assert await moved.move() == 0


async def test_after_a_crash_between_store_and_database_nothing_is_lost_or_doubled(moved: MovedWorld) -> None:
    device = await moved.reported()
    before = await moved.history(device)
    async for _ in moved.mover.move_steps():
        break
    kept_by_both = dict(moved.older.rows)
    await moved.move()
    async with moved.uow.write() as tx:  # as if the deletes of the first step had not been committed
        numbers = {name: number for number, name, _ in await tx.readings.list_device_metrics(device.device_no)}
        for (_, (at_ms, digest)), message in kept_by_both.items():
            packed = pack_readings([(numbers[name], value) for name, value in message.readings])
            await tx.readings.add_many([(device.device_no, at_ms, digest, packed)])
    assert await moved.history(device) == before
    assert await moved.move() == len(kept_by_both) > 0
    assert await moved.history(device) == before


async def test_while_the_store_is_away_nothing_is_deleted_and_no_answer_is_shorter(moved: MovedWorld) -> None:
    device = await moved.reported()
    moved.older.fails = Unavailable("away")
    with pytest.raises(Unavailable):
        await moved.move()
    assert await moved.in_database(device) == 48
    moved.older.fails = None
    await moved.move()
    moved.older.fails = Unavailable("away")
    with pytest.raises(Unavailable):
        await moved.history(device, limit=25 * 3)
    assert len(await moved.history(device, limit=20 * 3)) == 20 * 3, "the database has these"
    assert len(await moved.history(device, HistoryTimeRange(moved.clock.now_ms() - DAY_MS, 2**50))) == 12 * 3
    with pytest.raises(Unavailable):
        await moved.history(await moved.device())


async def test_an_hour_without_its_rollup_is_not_moved(moved: MovedWorld) -> None:
    device = await moved.device()
    await moved.report(device, temperature=1)
    moved.clock.forward(5 * DAY_MS)
    assert await moved.move() == 0
    assert moved.mover.waits_for_rollups
    await moved.complete_rollups()
    assert await moved.move() == 1
    assert not moved.mover.waits_for_rollups


async def test_a_late_reading_is_found_and_moved_like_any_other(moved: MovedWorld) -> None:
    device = await moved.reported()
    await moved.move()
    at_ms = moved.clock.now_ms() - 3 * DAY_MS + 1
    payload = b'{"ts": %d, "m": {"temperature": 99}}' % at_ms
    await moved.store(await moved.ingest_all([(device.device_no, moved.clock.now_ms(), payload)]))
    for _ in range(2):
        [found] = await moved.history(device, HistoryTimeRange(at_ms, at_ms + 1))
        assert (found.value, found.at_ms) == (99, at_ms)
        await moved.complete_rollups()
        await moved.move()
    assert await moved.in_database(device) == 24


async def test_a_message_that_arrives_during_the_move_is_not_deleted(moved: MovedWorld) -> None:
    device = await moved.reported()
    late = pack_readings([(1, 77.0)])

    class Arriving(MemoryReadingStore):
        async def add_many(self, messages: Sequence[Any]) -> None:
            await super().add_many(messages)
            at_ms = messages[0][1].at_ms + 1
            async with moved.uow.write() as tx:
                await tx.readings.add_many([(device.device_no, at_ms, row_digest(late), late)])

    store = Arriving()
    mover = OldReadingMover(uow=moved.uow, clock=moved.clock, store=store, days=DAYS)
    async for _ in mover.move_steps():
        break
    assert (len(store.rows), await moved.in_database(device)) == (24, 25)


async def test_readings_of_deleted_devices_are_deleted_and_not_moved(moved: MovedWorld) -> None:
    device = await moved.reported()
    packed = pack_readings([(1, 1.0)])
    async with moved.uow.write() as tx:
        await tx.readings.add_many([(9_999, 5, 1, packed)])
        await save_device(tx, device.transition(DeviceLifecycleAction.DELETE))
    await moved.move()
    assert not moved.older.rows
    assert await moved.in_database(device) == 24


async def test_a_damaged_message_is_counted_and_holds_nobody_up(moved: MovedWorld) -> None:
    device = await moved.reported()
    async with moved.uow.write() as tx:
        await tx.readings.add_many([(device.device_no, 5, 1, b"\xff")])
    await moved.move()
    assert (moved.mover.damaged_messages, len(moved.older.rows), await moved.in_database(device)) == (1, 24, 24)


async def test_a_metric_without_a_name_keeps_its_number(moved: MovedWorld) -> None:
    device = await moved.reported()
    packed = pack_readings([(700, 1.5)])
    async with moved.uow.write() as tx:
        await tx.readings.add_many([(device.device_no, 5, 1, packed)])
    before = await moved.history(device, HistoryTimeRange(0, 6))
    await moved.move()
    assert await moved.history(device, HistoryTimeRange(0, 6)) == before
    assert [(each.metric, each.value) for each in before] == [("#700", 1.5)]


async def test_retention_leaves_readings_to_the_mover(moved: MovedWorld) -> None:
    device = await moved.reported()
    for moves, kept in ((True, 48), (False, 24)):
        periods = RetentionPeriods(readings=DAYS)
        retention = RetentionService(uow=moved.uow, clock=moved.clock, periods=periods, moves_readings=moves)
        async for _ in retention.purge_steps():
            pass
        assert await moved.in_database(device) == kept


async def test_the_worker_warns_when_the_store_has_been_away_for_an_hour(moved: MovedWorld) -> None:
    await moved.reported()
    worker = OldReadingMoverWorker(mover=moved.mover, clock=moved.clock)
    assert worker.warning() is None
    moved.clock.forward(2 * HOUR_MS)
    assert worker.warning() is None, "it runs on another instance"
    await worker.run_once()
    assert (worker.moved_messages, worker.warning()) == (len(moved.older.rows), None)
    moved.older.fails = Unavailable("away")
    moved.clock.forward(2 * HOUR_MS)
    with pytest.raises(Unavailable):
        await worker.run_once()
    assert worker.warning() is not None


async def test_a_feed_client_that_missed_what_may_have_moved_reads_the_history_instead(moved: MovedWorld) -> None:
    device, now_s = await moved.device(), moved.clock.now_ms() // 1_000
    missed = FeedReadingReplayService(uow=moved.uow, engine=moved.engine, moved_before_ms=moved.moved_before_ms)
    async with moved.uow.write() as tx:
        since_s = await tx.arrivals.advance_store_time(now_s)
    wanted = FeedFilter(device.account_id)
    assert await missed.find(wanted, None, since_s) is not None
    late = (device.device_no, now_s // 60, moved.clock.now_ms() - 3 * DAY_MS, moved.clock.now_ms() - 3 * DAY_MS + 1)
    async with moved.uow.write() as tx:
        await tx.arrivals.mark_late([late])
    assert await missed.find(wanted, None, since_s) is None
