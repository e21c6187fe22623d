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
from domain.kernel.clock import DAY_MS, HOUR_MS, Clock
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
MAX_BUCKETS = 1_000


@dataclass(slots=True)
class _AggregationQuery:
    device: Device
    span: HistoryTimeRange
    metric_no: int | None
    step_ms: int
    messages_read: int = 0


@service
class DownsamplingQueryService:
    uow: UnitOfWork[TelemetryTx]
    clock: Clock
    engine: TelemetryEngine
    authorizer: Authorizer
    stored: ReadingHistory = field(default_factory=ReadingHistory)

    async def query_buckets(
        self, caller: Caller, device_id: DeviceId, span: HistoryTimeRange, *, metric: str | None, step_ms: int, limit: int
    ) -> list[BucketStatistics]:
        """At most `limit` buckets, newest first. An open end means now; an open start follows from `limit`.

        Raises NotFound, PermissionDenied, and ValidationFailed if the range has too many buckets or messages."""
        async with self.uow.read() as tx:
            device = await get_readable_device(tx, self.authorizer, caller, device_id, self.clock.now_ms())
            names = await DeviceMetricNames.load(tx, device)
            number = None if metric is None else names.find_number(metric)
            if metric is not None and number is None:
                return []
            span = await self._clip_range(tx, device.device_no, span, step_ms, limit)
            if (span.until_ms - span.since_ms) // step_ms > MAX_BUCKETS:
                raise ValidationFailed.for_field(
                    "step", f"gives more than {MAX_BUCKETS} buckets; use a longer step or a shorter time range."
                )
            cells = await self._aggregate(tx, _AggregationQuery(device, span, number, step_ms))
        return [
            BucketStatistics(name, from_ms, low, high, total / count, count, total, last, unit)
            for from_ms, no, count, low, high, total, last, _ in cells[:limit]
            for name, unit in [names.name_and_unit(no)]
        ]

    async def _clip_range(
        self, tx: TelemetryTx, device_no: int, span: HistoryTimeRange, step_ms: int, count: int
    ) -> HistoryTimeRange:
        """The last `count` buckets of the range that can contain readings."""
        until_ms = min(span.until_ms, self.clock.now_ms() + DAY_MS)
        if until_ms == span.until_ms and span.since_ms > 0:
            return span
        ends = [at_ms + 1 for at_ms, _ in await tx.readings.list_between(device_no, span.since_ms, until_ms, 1)]
        hours = await tx.rollups.list_between(device_no, span.since_ms // HOUR_MS, -(-until_ms // HOUR_MS), 1)
        ends += [(hour + 1) * HOUR_MS for hour, _ in hours]
        until_ms = min(until_ms, max(ends, default=until_ms))
        first_ms = (until_ms - 1) // step_ms * step_ms - (count - 1) * step_ms
        return HistoryTimeRange(max(span.since_ms, first_ms, 0), until_ms)

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
                        "since", f"covers more than {MAX_MESSAGES:,} messages; use a shorter time range."
                    )
        return aggregator.cells()
