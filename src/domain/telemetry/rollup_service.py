"""Summing up finished hours, in steps that hold the writer for a few milliseconds each.

The law: whoever stores readings marks their hours in the same transaction, and a mark goes only in the transaction that stores
the hour's roll-up, and only if it is still the mark that was there before the readings were read. So an hour without a mark has
a roll-up that equals its readings: after a crash at any moment, for readings that come late, and with several instances at work.

While an hour lasts it need not be marked anew with every batch. `HourMarks` remembers what is marked, and only for hours that are
not over: no worker takes their marks away.
"""

from __future__ import annotations

from collections.abc import Sequence

from domain.kernel.clock import HOUR_MS, MINUTE_MS, Clock
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.engine_port import AggregateCell, TelemetryEngine
from domain.telemetry.engine.rollup_format import merge_by_higher_count, pack_rollup, unpack_rollup
from domain.telemetry.ports import DueRollup, TelemetryTx
from domain.telemetry.queries.paging import TimeRange, read_page

GRACE_MS = 2 * MINUTE_MS
"""After an hour's end: no transaction lasts that long, and clocks of several instances may differ by as much."""
PAGE_MESSAGES = 2_000
"""Read at once; the database and the engine take a few milliseconds."""
MARKS_PER_STEP = 50
MESSAGES_PER_STEP = 20_000


class RollupMarkCache:
    def __init__(self) -> None:
        self._marked: dict[int, set[int]] = {}
        """Hour → device numbers; hours that are over are thrown away, and a clock may be a day ahead: 25 hours at the most."""

    def find_unmarked(self, hours: Sequence[tuple[int, int]], now_ms: int) -> list[tuple[int, int]]:
        """Those that must be marked."""
        now_hour = now_ms // HOUR_MS
        for hour in [hour for hour in self._marked if hour < now_hour]:
            del self._marked[hour]
        return [(no, hour) for no, hour in hours if hour < now_hour or no not in self._marked.get(hour, ())]

    def remember(self, hours: Sequence[tuple[int, int]]) -> None:
        """Once their marks are durable."""
        for device_no, hour in hours:
            self._marked.setdefault(hour, set()).add(device_no)


class RollupService:
    def __init__(self, *, uow: UnitOfWork[TelemetryTx], clock: Clock, engine: TelemetryEngine) -> None:
        self._uow = uow
        self._clock = clock
        self._engine = engine

    async def run_once(self) -> int:
        """Sum up some hours, oldest first. Returns how many marks were looked at; 0 when none is due."""
        async with self._uow.read() as tx:
            due = await tx.rollups.list_due((self._clock.now_ms() - GRACE_MS) // HOUR_MS, MARKS_PER_STEP)
        summed: list[tuple[DueRollup, list[AggregateCell]]] = []
        messages = 0
        for mark in due:
            cells, read = await self._aggregate_hour(mark)
            summed.append((mark, cells))
            messages += read
            if messages >= MESSAGES_PER_STEP:
                break
        if summed:
            await self._store(summed)
        return len(summed)

    async def _aggregate_hour(self, mark: DueRollup) -> tuple[list[AggregateCell], int]:
        """The hour's cells, and how many messages it has. Each page is its own read: the mark tells of what comes in between."""
        device_no, hour, _ = mark
        span = TimeRange(hour * HOUR_MS, (hour + 1) * HOUR_MS)
        tally, messages, after = self._engine.create_aggregator(HOUR_MS), 0, None
        while True:
            async with self._uow.read() as tx:
                rows, after = await read_page(tx, device_no, span, PAGE_MESSAGES, after)
            tally.add(rows)
            messages += len(rows)
            if after is None:
                return tally.cells(), messages

    async def _store(self, summed: Sequence[tuple[DueRollup, list[AggregateCell]]]) -> None:
        async with self._uow.write() as tx:
            settled = await tx.rollups.complete([mark for mark, _ in summed])
            known = await tx.rollups.get_by_hours(settled)
            rows = []
            for (device_no, hour, _), cells in summed:
                if (device_no, hour) not in settled:
                    continue  # more has come meanwhile, or another instance was faster
                before = known.get((device_no, hour))
                whole = cells if before is None else merge_by_higher_count(cells, unpack_rollup(hour, before))
                if whole:
                    rows.append((device_no, hour, pack_rollup(whole)))
            await tx.rollups.upsert(rows)
