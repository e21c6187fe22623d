"""Downsamples telemetry: minimum, maximum, mean and more per time bucket.

Buckets of full hours are combined from hourly roll-ups. Readings are used for hours that are marked as due (above all the current
one) and for the partial hours at both ends. Roll-ups, marks and readings are read in one snapshot, and hours are combined newest
first wherever they come from, so the result equals what the readings alone would give, to the last bit, and reaches beyond the
retention of readings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from domain.devices.model import Device
from domain.grants.authorizer import Authorizer, get_readable_device
from domain.kernel.caller import Caller
from domain.kernel.clock import HOUR_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import AggregateCell, TelemetryEngine
from domain.telemetry.aggregation import combine_cells, unpack_rollup
from domain.telemetry.history import DeviceMetricNames, ReadingHistory, single_number
from domain.telemetry.model import BucketStatistics, HistoryTimeRange
from domain.telemetry.ports import TelemetryTx

PAGE_MESSAGES = 2_000
PAGE_HOURS = 1_000
MAX_MESSAGES = 1_000_000
"""Messages that a query may read, which takes some seconds: ten days at one message per second."""
MAX_WINDOWS = 64
"""A page reads the range in so many parts at most. Each is four times as long as the one before while there is little in them."""
BucketPosition = tuple[int, int]
"""(start of a bucket in Unix ms, number of its metric). With -1 it is the end of what has been read."""
BUCKET_POSITION = (int, int)


@dataclass(slots=True)
class _AggregationQuery:
    """`span`: the part of `whole` that is read next."""

    device: Device
    whole: HistoryTimeRange
    numbers: frozenset[int] | None
    step_ms: int
    newest_first: bool
    span: HistoryTimeRange = field(init=False)
    messages_read: int = 0

    def __post_init__(self) -> None:
        self.span = self.whole

    def wanted(self, cells: Iterable[AggregateCell]) -> list[AggregateCell]:
        return [cell for cell in cells if self.numbers is None or cell[1] in self.numbers]

    def is_behind(self, cell: AggregateCell, after: BucketPosition) -> bool:
        sign = -1 if self.newest_first else 1
        return (sign * cell[0], cell[1]) > (sign * after[0], after[1])


@service
class DownsamplingQueryService:
    uow: UnitOfWork[TelemetryTx]
    clock: Clock
    engine: TelemetryEngine
    authorizer: Authorizer
    stored: ReadingHistory = field(default_factory=ReadingHistory)

    async def query_buckets(
        self,
        caller: Caller,
        device_id: DeviceId,
        span: HistoryTimeRange,
        *,
        metric: str | None,
        step_ms: int,
        limit: int,
        after: BucketPosition | None = None,
        newest_first: bool = True,
    ) -> tuple[list[BucketStatistics], BucketPosition | None]:
        """At most `limit` buckets with readings behind the position, in the order of their times; and the position behind which
        there may be more, None if there are none. The result is exact however the walk is cut into pages. `metric`: names,
        comma-separated.

        Raises NotFound, PermissionDenied, and ValidationFailed if `limit` buckets have too many messages."""
        async with self.uow.read() as tx:
            device = await get_readable_device(tx, self.authorizer, caller, device_id, self.clock.now_ms())
            names = await DeviceMetricNames.load(tx, device)
            numbers = names.find_numbers(metric)
            if numbers is not None and not numbers:
                return [], None
            query = _AggregationQuery(device, span, numbers, step_ms, newest_first)
            cells, end_ms = await self._next_cells(tx, query, limit, after)
        shown, more = cells[:limit], None
        if len(cells) > limit:
            more = (shown[-1][0], shown[-1][1])
        elif end_ms is not None:
            more = (end_ms, -1)
        buckets = [
            BucketStatistics(name, from_ms, low, high, total / count, count, total, last, unit)
            for from_ms, no, count, low, high, total, last, _ in shown
            for name, unit in [names.name_and_unit(no)]
        ]
        return buckets, more

    async def _next_cells(
        self, tx: TelemetryTx, query: _AggregationQuery, limit: int, after: BucketPosition | None
    ) -> tuple[list[AggregateCell], int | None]:
        """More than `limit` cells behind the position, in the order of the query, or all up to a time (Unix ms): None if there
        are no more. Times without readings are passed over: the fewer readings, the more of the range is read at once."""
        steps, cells = limit, list[AggregateCell]()
        left: HistoryTimeRange | None = self._left(query, after)
        for _ in range(MAX_WINDOWS):
            left = None if left is None else await self._from_readings_on(tx, query, left)
            if left is None:
                return cells, None
            query.span, left = _divide(left, query.step_ms, steps, newest_first=query.newest_first)
            try:
                found = await self._aggregate(tx, query)
            except ValidationFailed:
                if not cells:
                    raise
                return cells, query.span.until_ms if query.newest_first else query.span.since_ms
            found = found if query.newest_first else sorted(found)
            cells += found if after is None else [cell for cell in found if query.is_behind(cell, after)]
            if len(cells) > limit:
                break
            steps *= 1 if len(found) > limit // 2 else 4
        return cells, None if left is None else left.until_ms if query.newest_first else left.since_ms

    @staticmethod
    def _left(query: _AggregationQuery, after: BucketPosition | None) -> HistoryTimeRange:
        """What is to be read: once more from the bucket of the last cell."""
        span = query.whole
        if after is None:
            return span
        if query.newest_first:
            end_ms = max(0, after[0] + (query.step_ms if after[1] >= 0 else 0))
            return HistoryTimeRange(span.since_ms, min(span.until_ms, end_ms))
        return HistoryTimeRange(min(max(span.since_ms, after[0]), span.until_ms), span.until_ms)

    async def _from_readings_on(
        self, tx: TelemetryTx, query: _AggregationQuery, left: HistoryTimeRange
    ) -> HistoryTimeRange | None:
        """Without the time that is read first and has no readings, neither of messages nor of hours with a roll-up."""
        device_no, newest_first = query.device.device_no, query.newest_first
        nearest, _ = await self.stored.read_page(tx, query.device, left, 1, None, newest_first=newest_first)
        hours = await tx.rollups.list_between(
            device_no, left.since_ms // HOUR_MS, -(-left.until_ms // HOUR_MS), 1, newest_first=newest_first
        )
        hours = hours if query.step_ms % HOUR_MS == 0 else []
        if not nearest and not hours:
            return None
        if newest_first:
            ends = [at_ms + 1 for at_ms, _ in nearest] + [(hour + 1) * HOUR_MS for hour, _ in hours]
            return HistoryTimeRange(left.since_ms, min(left.until_ms, max(ends)))
        begins = [at_ms for at_ms, _ in nearest] + [hour * HOUR_MS for hour, _ in hours]
        return HistoryTimeRange(max(left.since_ms, min(begins)), left.until_ms)

    async def _aggregate(self, tx: TelemetryTx, query: _AggregationQuery) -> list[AggregateCell]:
        since_ms, until_ms = query.span.since_ms, query.span.until_ms
        if query.step_ms % HOUR_MS:
            return await self._aggregate_readings(tx, query, query.span, query.step_ms)
        first, end = -(-since_ms // HOUR_MS), until_ms // HOUR_MS
        if first >= end:
            return combine_cells(await self._aggregate_readings(tx, query, query.span, HOUR_MS), query.step_ms)
        cells = await self._aggregate_readings(tx, query, HistoryTimeRange(end * HOUR_MS, until_ms), HOUR_MS)
        cells += await self._aggregate_whole_hours(tx, query, first, end)
        cells += await self._aggregate_readings(tx, query, HistoryTimeRange(since_ms, first * HOUR_MS), HOUR_MS)
        return combine_cells(cells, query.step_ms)

    async def _aggregate_whole_hours(
        self, tx: TelemetryTx, query: _AggregationQuery, first: int, end: int
    ) -> list[AggregateCell]:
        """Cells of the full hours with first ≤ hour < end."""
        due = await tx.due_rollups.list_hours(query.device.device_no, first, end)
        cells: list[AggregateCell] = []
        for hour in due:
            cells += await self._aggregate_readings(tx, query, HistoryTimeRange(hour * HOUR_MS, (hour + 1) * HOUR_MS), HOUR_MS)
        readings_only, before = frozenset(due), end
        while True:
            rows = await tx.rollups.list_between(query.device.device_no, first, before, PAGE_HOURS)
            for hour, packed in rows:
                if hour not in readings_only:
                    cells += query.wanted(unpack_rollup(hour, packed))
            if len(rows) < PAGE_HOURS:
                return cells
            before = rows[-1][0]

    async def _aggregate_readings(
        self, tx: TelemetryTx, query: _AggregationQuery, span: HistoryTimeRange, step_ms: int
    ) -> list[AggregateCell]:
        """Cells computed from the readings."""
        aggregator = self.engine.create_aggregator(step_ms, single_number(query.numbers))
        if span.since_ms < span.until_ms:
            async for rows in self.stored.iterate_pages(tx, query.device, span, PAGE_MESSAGES):
                aggregator.add(rows)
                query.messages_read += len(rows)
                if query.messages_read > MAX_MESSAGES:
                    raise ValidationFailed.for_field(
                        "limit", f"buckets have more than {MAX_MESSAGES:,} messages; use a smaller limit or a shorter time range."
                    )
        return query.wanted(aggregator.cells())


def _divide(
    left: HistoryTimeRange, step_ms: int, steps: int, *, newest_first: bool
) -> tuple[HistoryTimeRange, HistoryTimeRange | None]:
    """The next `steps` buckets, and the rest."""
    if newest_first:
        cut_ms = (left.until_ms - 1) // step_ms * step_ms - (steps - 1) * step_ms
        if cut_ms <= max(left.since_ms, 0):
            return HistoryTimeRange(max(left.since_ms, 0), left.until_ms), None
        return HistoryTimeRange(cut_ms, left.until_ms), HistoryTimeRange(left.since_ms, cut_ms)
    cut_ms = (left.since_ms // step_ms + steps) * step_ms
    if cut_ms >= left.until_ms:
        return left, None
    return HistoryTimeRange(left.since_ms, cut_ms), HistoryTimeRange(cut_ms, left.until_ms)
