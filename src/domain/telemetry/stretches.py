"""Telemetry downsampled: minimum, maximum, mean and more per stretch of time.

Stretches of whole hours are put together from hourly roll-ups. An hour that is marked as having readings its roll-up does not
know (the one under way above all) is read from its readings, and so are the parts of hours at both ends. Roll-ups, marks and
readings are read in one snapshot, so the answer is what the readings alone would give, to the last bit, and goes on beyond the
time for which readings are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.grants.service import Gate
from domain.kernel.caller import Caller
from domain.kernel.clock import DAY_MS, HOUR_MS, Clock
from domain.kernel.errors import Invalid
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import Cell, TelemetryEngine
from domain.telemetry.model import Bucket
from domain.telemetry.paging import Span, pages
from domain.telemetry.ports import TelemetryTx
from domain.telemetry.rollup import combine, unpack
from domain.telemetry.service import Names, visible

PAGE_MESSAGES = 2_000
PAGE_HOURS = 1_000
MAX_MESSAGES = 1_000_000
"""What one question may read, some seconds of a reader's time: ten days of a message a second."""
MAX_BUCKETS = 1_000


@dataclass(slots=True)
class _Question:
    device_no: int
    span: Span
    metric_no: int | None
    step_ms: int
    read: int = 0


class StretchService:
    def __init__(self, *, uow: UnitOfWork[TelemetryTx], clock: Clock, engine: TelemetryEngine, gate: Gate) -> None:
        self._uow = uow
        self._clock = clock
        self._engine = engine
        self._gate = gate

    async def buckets(
        self, caller: Caller, device_id: DeviceId, span: Span, *, metric: str | None, step_ms: int, limit: int
    ) -> list[Bucket]:
        """At most `limit` buckets, newest first. An open end is now, and an open begin follows from `limit`.

        Raises NotFound, Refused, and Invalid when the span has too many stretches or readings."""
        async with self._uow.read() as tx:
            device = await visible(tx, self._gate, caller, device_id, self._clock.now_ms())
            names = await Names.of(tx, device)
            number = None if metric is None else names.number(metric)
            if metric is not None and number is None:
                return []
            span = await self._bounded(tx, device.device_no, span, step_ms, limit)
            if (span.until_ms - span.since_ms) // step_ms > MAX_BUCKETS:
                raise Invalid.field("step", f"gives more than {MAX_BUCKETS} stretches; take a longer step or a shorter time.")
            cells = await self._cells(tx, _Question(device.device_no, span, number, step_ms))
        return [
            Bucket(names.of_metric(no)[0], from_ms, low, high, total / count, count, total, last)
            for from_ms, no, count, low, high, total, last, _ in cells[:limit]
        ]

    async def _bounded(self, tx: TelemetryTx, device_no: int, span: Span, step_ms: int, count: int) -> Span:
        """The last `count` stretches of the span that can hold readings."""
        until_ms = min(span.until_ms, self._clock.now_ms() + DAY_MS)
        if until_ms == span.until_ms and span.since_ms > 0:
            return span
        ends = [at_ms + 1 for at_ms, _ in await tx.readings.between(device_no, span.since_ms, until_ms, 1)]
        hours = await tx.rollups.between(device_no, span.since_ms // HOUR_MS, -(-until_ms // HOUR_MS), 1)
        ends += [(hour + 1) * HOUR_MS for hour, _ in hours]
        until_ms = min(until_ms, max(ends, default=until_ms))
        first_ms = (until_ms - 1) // step_ms * step_ms - (count - 1) * step_ms
        return Span(max(span.since_ms, first_ms, 0), until_ms)

    async def _cells(self, tx: TelemetryTx, asked: _Question) -> list[Cell]:
        since_ms, until_ms = asked.span.since_ms, asked.span.until_ms
        if asked.step_ms % HOUR_MS:
            return await self._raw(tx, asked, asked.span, asked.step_ms)
        first, end = -(-since_ms // HOUR_MS), until_ms // HOUR_MS
        if first >= end:
            return combine(await self._raw(tx, asked, asked.span, HOUR_MS), asked.step_ms)
        cells = await self._raw(tx, asked, Span(end * HOUR_MS, until_ms), HOUR_MS)
        cells += await self._hours(tx, asked, first, end)
        cells += await self._raw(tx, asked, Span(since_ms, first * HOUR_MS), HOUR_MS)
        return combine(cells, asked.step_ms)

    async def _hours(self, tx: TelemetryTx, asked: _Question, first: int, end: int) -> list[Cell]:
        """Cells of whole hours with first ≤ hour < end."""
        due = await tx.rollups.due_of(asked.device_no, first, end)
        cells: list[Cell] = []
        for hour in due:
            cells += await self._raw(tx, asked, Span(hour * HOUR_MS, (hour + 1) * HOUR_MS), HOUR_MS)
        readings_only, before = frozenset(due), end
        while True:
            rows = await tx.rollups.between(asked.device_no, first, before, PAGE_HOURS)
            for hour, packed in rows:
                if hour not in readings_only:
                    cells += unpack(hour, packed, asked.metric_no)
            if len(rows) < PAGE_HOURS:
                return cells
            before = rows[-1][0]

    async def _raw(self, tx: TelemetryTx, asked: _Question, span: Span, step_ms: int) -> list[Cell]:
        """Cells out of the readings themselves."""
        tally = self._engine.tally(step_ms, asked.metric_no)
        if span.since_ms < span.until_ms:
            async for rows in pages(tx, asked.device_no, span, PAGE_MESSAGES):
                tally.add(rows)
                asked.read += len(rows)
                if asked.read > MAX_MESSAGES:
                    raise Invalid.field("since", f"reaches over more than {MAX_MESSAGES:,} messages; take a shorter time.")
        return tally.cells()
