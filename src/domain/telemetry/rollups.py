"""Computes hourly roll-ups of completed hours, in steps that hold the writer for a few milliseconds each.

The law: every transaction that stores readings also marks their hours. Only the transaction that stores an hour's roll-up deletes
its mark, and only if the mark has not changed since the readings were read. So an hour without a mark has a roll-up that equals
its readings: after a crash at any moment, for readings that arrive late, and with several instances.

The current hour need not be marked with every batch: `DueRollupMarkCache` remembers marks of hours that have not ended. No worker
deletes those marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from domain.kernel.clock import HOUR_MS, MINUTE_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import AggregateCell, TelemetryEngine
from domain.telemetry.aggregation import pack_rollup, unpack_rollup
from domain.telemetry.history import read_page
from domain.telemetry.model import HistoryTimeRange
from domain.telemetry.ports import DueRollup, TelemetryTx

GRACE_MS = 2 * MINUTE_MS
"""Wait after the end of an hour. No transaction lasts that long, and the clocks of several instances may differ by that much."""
PAGE_MESSAGES = 2_000
"""Messages per read, which takes the database and the engine a few milliseconds."""
MARKS_PER_STEP = 50
MESSAGES_PER_STEP = 20_000


class DueRollupMarkCache:
    def __init__(self) -> None:
        self._marked: dict[int, set[int]] = {}
        """Hour → device numbers. Ended hours are removed, and a device clock may be a day ahead, so it holds 25 hours at most."""

    def find_unmarked(self, hours: Sequence[tuple[int, int]], now_ms: int) -> list[tuple[int, int]]:
        """Return the (device number, hour) pairs that must be marked."""
        now_hour = now_ms // HOUR_MS
        for hour in [hour for hour in self._marked if hour < now_hour]:
            del self._marked[hour]
        return [(no, hour) for no, hour in hours if hour < now_hour or no not in self._marked.get(hour, ())]

    def remember(self, hours: Sequence[tuple[int, int]]) -> None:
        """Call it after the commit of the marks."""
        for device_no, hour in hours:
            self._marked.setdefault(hour, set()).add(device_no)


@service
class RollupService:
    uow: UnitOfWork[TelemetryTx]
    clock: Clock
    engine: TelemetryEngine

    async def run_once(self) -> int:
        """Compute some roll-ups, oldest hour first. Returns how many marks were processed; 0 when none is due."""
        async with self.uow.read(one_statement=True) as tx:
            due = await tx.due_rollups.list_before((self.clock.now_ms() - GRACE_MS) // HOUR_MS, MARKS_PER_STEP)
        aggregated: list[tuple[DueRollup, list[AggregateCell]]] = []
        messages = 0
        for mark in due:
            cells, count = await self._aggregate_hour(mark)
            aggregated.append((mark, cells))
            messages += count
            if messages >= MESSAGES_PER_STEP:
                break
        if aggregated:
            await self._store(aggregated)
        return len(aggregated)

    async def _aggregate_hour(self, mark: DueRollup) -> tuple[list[AggregateCell], int]:
        """The hour's cells and its number of messages. Each page is a read of its own; the mark changes when readings arrive
        in between."""
        device_no, hour, _ = mark
        span = HistoryTimeRange(hour * HOUR_MS, (hour + 1) * HOUR_MS)
        aggregator, messages, after = self.engine.create_aggregator(HOUR_MS), 0, None
        while True:
            async with self.uow.read(one_statement=True) as tx:
                rows, after = await read_page(tx, device_no, span, PAGE_MESSAGES, after)
            aggregator.add(rows)
            messages += len(rows)
            if after is None:
                return aggregator.cells(), messages

    async def _store(self, aggregated: Sequence[tuple[DueRollup, list[AggregateCell]]]) -> None:
        async with self.uow.write(caller=None) as tx:
            completed = await tx.due_rollups.complete([mark for mark, _ in aggregated])
            known = await tx.rollups.get_by_hours(completed)
            rows = []
            for (device_no, hour, _), cells in aggregated:
                if (device_no, hour) not in completed:
                    continue  # more readings have arrived, or another instance was faster
                stored = known.get((device_no, hour))
                merged = cells if stored is None else merge_by_higher_count(cells, unpack_rollup(hour, stored))
                if merged:
                    rows.append((device_no, hour, pack_rollup(merged)))
            await tx.rollups.upsert(rows)


def merge_by_higher_count(one: Iterable[AggregateCell], other: Iterable[AggregateCell]) -> list[AggregateCell]:
    """Merge two roll-ups of an hour: per metric the one with the higher count, since readings are only added or expire."""
    best = {cell[1]: cell for cell in one}
    for cell in other:
        if cell[1] not in best or cell[2] > best[cell[1]][2]:
            best[cell[1]] = cell
    return list(best.values())
