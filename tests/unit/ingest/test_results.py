"""The store time of batches, and the marks of late uploads."""

from __future__ import annotations

from domain.ingest.results import ReadingArrivalRecorder
from support.manual_clock import START_MS, ManualClock
from support.memory_storage import MemoryUnitOfWork

MINUTE_MS = 60_000
START_MINUTE = START_MS // MINUTE_MS


class Arrivals:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.uow = MemoryUnitOfWork()
        self.recorder = ReadingArrivalRecorder(clock=self.clock)

    async def record(self, *rows: tuple[int, int]) -> int:
        """Each row: device number, milliseconds before now."""
        now_ms = self.clock.now_ms()
        async with self.uow.write() as tx:
            return await self.recorder.record(tx, [(device_no, now_ms - age_ms, 0, b"") for device_no, age_ms in rows])

    async def late(self, since_minute: int = 0) -> dict[int, tuple[int, int]]:
        async with self.uow.read() as tx:
            return dict(await tx.arrivals.list_late([1, 2, 3], since_minute))


async def test_the_store_time_follows_the_clock_but_never_decreases() -> None:
    arrivals = Arrivals()
    first = await arrivals.record((1, 0))
    assert first == START_MS // 1000
    arrivals.clock.forward(seconds=2)
    assert await arrivals.record((1, 0)) == first + 2
    arrivals.clock.forward(seconds=-60)
    assert await arrivals.record((1, 0)) == first + 2
    arrivals.recorder = ReadingArrivalRecorder(clock=arrivals.clock)  # the service starts again
    assert await arrivals.record((1, 0)) == first + 2


async def test_a_store_time_that_another_leader_set_is_taken_over() -> None:
    arrivals = Arrivals()
    first = await arrivals.record((1, 0))
    async with arrivals.uow.write() as tx:
        await tx.arrivals.advance_store_time(first + 100)
    arrivals.clock.forward(seconds=1)
    assert await arrivals.record((1, 0)) == first + 100


async def test_only_readings_older_than_five_seconds_are_marked_in_whole_minutes() -> None:
    arrivals = Arrivals()
    await arrivals.record((1, 5_000), (1, -60_000), (2, 5_001), (3, 61_000), (3, 3_600_000))
    assert await arrivals.late() == {2: (START_MS - MINUTE_MS, START_MS), 3: (START_MS - 60 * MINUTE_MS, START_MS - MINUTE_MS)}


async def test_a_mark_grows_and_each_minute_of_the_store_time_has_its_own() -> None:
    arrivals = Arrivals()
    await arrivals.record((1, 10 * MINUTE_MS))
    await arrivals.record((1, 5 * MINUTE_MS))
    assert await arrivals.late() == {1: (START_MS - 10 * MINUTE_MS, START_MS - 4 * MINUTE_MS)}
    arrivals.clock.forward(minutes=1)
    await arrivals.record((1, 3 * MINUTE_MS))
    assert await arrivals.late(START_MINUTE + 1) == {1: (START_MS - 2 * MINUTE_MS, START_MS - MINUTE_MS)}


async def test_a_failed_transaction_is_marked_again() -> None:
    arrivals = Arrivals()
    try:
        async with arrivals.uow.write() as tx:
            await arrivals.recorder.record(tx, [(1, START_MS - 60 * MINUTE_MS, 0, b"")])
            raise RuntimeError
    except RuntimeError:
        pass
    assert await arrivals.late() == {}
    await arrivals.record((1, 60 * MINUTE_MS))
    assert set(await arrivals.late()) == {1}
