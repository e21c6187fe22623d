"""Downsamples telemetry: minimum, maximum, mean and more per time bucket.

Buckets of full hours are combined from hourly roll-ups. Readings are used for hours that are marked as due (above all the current
one) and for the partial hours at both ends. Roll-ups, marks and readings are read in one snapshot, and hours are combined newest
first wherever they come from, so the result equals what the readings alone would give, to the last bit, and reaches beyond the
retention of readings.
"""

from __future__ import annotations

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
from domain.telemetry.history import DeviceMetricNames, ReadingHistory
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
    device: Device
    span: HistoryTimeRange
    metric_no: int | None
    step_ms: int
    messages_read: int = 0
    start_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.start_ms = self.span.since_ms


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
    ) -> tuple[list[BucketStatistics], BucketPosition | None]:
        """At most `limit` buckets with readings behind the position, newest first; and the position behind which there may be
        more, None if there are none. The result is exact however the walk is cut into pages.

        Raises NotFound, PermissionDenied, and ValidationFailed if `limit` buckets have too many messages."""
        async with self.uow.read() as tx:
            device = await get_readable_device(tx, self.authorizer, caller, device_id, self.clock.now_ms())
            names = await DeviceMetricNames.load(tx, device)
            number = None if metric is None else names.find_number(metric)
            if metric is not None and number is None:
                return [], None
            cells, end_ms = await self._newest_cells(tx, _AggregationQuery(device, span, number, step_ms), limit, after)
        shown, more = cells[:limit], None
        if len(cells) > limit:
            more = (shown[-1][0], shown[-1][1])
        elif end_ms > span.since_ms:
            more = (end_ms, -1)
        buckets = [
            BucketStatistics(name, from_ms, low, high, total / count, count, total, last, unit)
            for from_ms, no, count, low, high, total, last, _ in shown
            for name, unit in [names.name_and_unit(no)]
        ]
        return buckets, more

    async def _newest_cells(
        self, tx: TelemetryTx, query: _AggregationQuery, limit: int, after: BucketPosition | None
    ) -> tuple[list[AggregateCell], int]:
        """More than `limit` cells behind the position, newest first, or all from a time (Unix ms) on: the start of the range if
        there are no more. Times without readings are passed over: the fewer readings, the more of the range is read at once."""
        span, step_ms, steps = query.span, query.step_ms, limit
        cells: list[AggregateCell] = []
        until_ms = span.until_ms
        if after is not None:  # once more from the bucket of the last cell
            until_ms = min(until_ms, max(0, after[0] + (step_ms if after[1] >= 0 else 0)))
        for _ in range(MAX_WINDOWS):
            end_ms = await self._end_of_readings(tx, query, until_ms)
            if end_ms is None:
                return cells, span.since_ms
            first_ms = (end_ms - 1) // step_ms * step_ms - (steps - 1) * step_ms
            query.span = HistoryTimeRange(max(span.since_ms, first_ms, 0), end_ms)
            try:
                found = await self._aggregate(tx, query)
            except ValidationFailed:
                if not cells:
                    raise
                break
            cells += found if after is None else [cell for cell in found if (-cell[0], cell[1]) > (-after[0], after[1])]
            until_ms = query.span.since_ms
            if len(cells) > limit or until_ms <= max(span.since_ms, 0):
                return cells, until_ms if len(cells) > limit else span.since_ms
            steps *= 1 if len(found) > limit // 2 else 4
        return cells, until_ms

    async def _end_of_readings(self, tx: TelemetryTx, query: _AggregationQuery, until_ms: int) -> int | None:
        """The end of the newest time before `until_ms` that has readings: of a message, or of an hour with a roll-up."""
        device_no, since_ms = query.device.device_no, query.start_ms
        newest = await self.stored.read_page(tx, query.device, HistoryTimeRange(since_ms, until_ms), 1, None)
        ends = [at_ms + 1 for at_ms, _ in newest[0]]
        hours = await tx.rollups.list_between(device_no, since_ms // HOUR_MS, -(-until_ms // HOUR_MS), 1)
        ends += [(hour + 1) * HOUR_MS for hour, _ in hours] if query.step_ms % HOUR_MS == 0 else []
        return min(until_ms, max(ends)) if ends else None

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
                    cells += unpack_rollup(hour, packed, query.metric_no)
            if len(rows) < PAGE_HOURS:
                return cells
            before = rows[-1][0]

    async def _aggregate_readings(
        self, tx: TelemetryTx, query: _AggregationQuery, span: HistoryTimeRange, step_ms: int
    ) -> list[AggregateCell]:
        """Cells computed from the readings."""
        aggregator = self.engine.create_aggregator(step_ms, query.metric_no)
        if span.since_ms < span.until_ms:
            async for rows in self.stored.iterate_pages(tx, query.device, span, PAGE_MESSAGES):
                aggregator.add(rows)
                query.messages_read += len(rows)
                if query.messages_read > MAX_MESSAGES:
                    raise ValidationFailed.for_field(
                        "limit", f"buckets have more than {MAX_MESSAGES:,} messages; use a smaller limit or a shorter time range."
                    )
        return aggregator.cells()
