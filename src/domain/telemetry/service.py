"""Reading telemetry back: the latest values, the history, downsampled stretches, and whole exports in bounded pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from domain.devices.lookup import device_of
from domain.devices.model import Device
from domain.grants.service import Gate
from domain.kernel.caller import Caller
from domain.kernel.clock import DAY_MS, Clock
from domain.kernel.errors import Invalid
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import TelemetryEngine, Unpacked
from domain.telemetry.model import Bucket, Reading
from domain.telemetry.ports import TelemetryTx

PAGE_MESSAGES = 1_000
MAX_SCANNED_MESSAGES = 200_000
"""A query for a rare metric reads no further back than this many messages; narrow it with `since` and `until`."""
MAX_BUCKETS = 1_000
NEWEST_ROWS = 200
"""Messages an engine that follows is shown before it is asked: a metric that is rarer than that is as new as the start."""


@dataclass(frozen=True, slots=True)
class Span:
    """since ≤ time < until, Unix ms."""

    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Latest:
    device: Device
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class _Names:
    """The device's metrics: number → (name, unit)."""

    by_no: dict[int, tuple[str, str | None]]

    def number(self, metric: str) -> int | None:
        return next((number for number, (name, _) in self.by_no.items() if name == metric), None)

    def reading(self, unpacked: Unpacked) -> Reading:
        at_ms, number, value, text = unpacked
        name, unit = self.by_no.get(number, (f"#{number}", None))
        return Reading(name, value, text, unit, at_ms)


class TelemetryService:
    def __init__(
        self, *, uow: UnitOfWork[TelemetryTx], clock: Clock, engine: TelemetryEngine, gate: Gate, follows: bool = False
    ) -> None:
        """`follows`: another instance takes the telemetry in; this one's engine is shown what is new before it is asked."""
        self._uow = uow
        self._clock = clock
        self._follows = follows
        self._engine = engine
        self._gate = gate

    async def latest(self, caller: Caller, device_id: DeviceId) -> Latest:
        """Straight from the engine: the last value of each metric, by name."""
        async with self._uow.read() as tx:
            device = await self._visible(tx, caller, device_id)
            if self._follows:
                await self._show_newest(tx, device)
        values = sorted(self._engine.latest(device.device_no), key=lambda reading: reading.metric)
        return Latest(device, tuple(_plain(r.metric, r.value, r.unit, r.ts_ms) for r in values))

    async def _show_newest(self, tx: TelemetryTx, device: Device) -> None:
        self._engine.set_metrics(await tx.readings.names())
        rows = await tx.readings.between(device.device_no, 0, self._clock.now_ms() + DAY_MS + 1, NEWEST_ROWS)
        for at_ms, packed in reversed(rows):
            self._engine.replay(device.device_no, at_ms, packed)

    async def history(self, caller: Caller, device_id: DeviceId, span: Span, *, metric: str | None, limit: int) -> list[Reading]:
        """At most `limit` readings, newest first. Raises NotFound, Refused."""
        found: list[Reading] = []
        async with self._uow.read() as tx:
            device = await self._visible(tx, caller, device_id)
            names = await self._names(tx, device)
            number = None if metric is None else names.number(metric)
            if metric is not None and number is None:
                return []
            async for rows in self._pages(tx, device, span, newest_first=True):
                found += [names.reading(unpacked) for unpacked in self._engine.unpack(rows, number)]
                if len(found) >= limit:
                    break
        return found[:limit]

    async def buckets(self, caller: Caller, device_id: DeviceId, span: Span, *, metric: str | None, step_ms: int) -> list[Bucket]:
        """Min, max, mean and count of numbers per stretch of `step_ms`, newest first. Raises Invalid on too many stretches."""
        if (span.until_ms - span.since_ms) // step_ms > MAX_BUCKETS:
            raise Invalid.field("step", f"gives more than {MAX_BUCKETS} stretches; take a longer step or a shorter time.")
        tally: dict[tuple[int, int], list[float]] = {}
        async with self._uow.read() as tx:
            device = await self._visible(tx, caller, device_id)
            names = await self._names(tx, device)
            number = None if metric is None else names.number(metric)
            if metric is not None and number is None:
                return []
            async for rows in self._pages(tx, device, span, newest_first=True):
                for at_ms, no, value, _ in self._engine.unpack(rows, number):
                    if value is not None:
                        _count(tally, (at_ms - at_ms % step_ms, no), value)
        newest_first = sorted(tally.items(), key=lambda item: (-item[0][0], item[0][1]))
        return [
            Bucket(names.by_no.get(no, (f"#{no}", None))[0], from_ms, low, high, total / count, int(count))
            for (from_ms, no), (low, high, total, count) in newest_first
        ]

    async def bounded(self, caller: Caller, device_id: DeviceId, span: Span, step_ms: int, count: int) -> Span:
        """The last `count` stretches of the span that can hold readings: an open end is now, an open begin follows from it."""
        until_ms = min(span.until_ms, self._clock.now_ms() + DAY_MS)
        if until_ms == span.until_ms and span.since_ms > 0:
            return span
        async with self._uow.read() as tx:
            device = await self._visible(tx, caller, device_id)
            newest = await tx.readings.between(device.device_no, span.since_ms, until_ms, 1)
        if newest:
            until_ms = min(until_ms, newest[0][0] + 1)
        first_ms = until_ms - until_ms % step_ms - (count - 1) * step_ms
        return Span(max(span.since_ms, first_ms, 0), until_ms)

    async def export(
        self, caller: Caller, device_id: DeviceId, span: Span, *, metric: str | None
    ) -> AsyncIterator[list[Reading]]:
        """Oldest first, a page of messages at a time; each page is its own short read, so that an export holds nothing up.

        Refusals are raised with the first page."""
        async with self._uow.read() as tx:
            device = await self._visible(tx, caller, device_id)
            names = await self._names(tx, device)
        number = None if metric is None else names.number(metric)
        if metric is not None and number is None:
            return
        since_ms = span.since_ms
        while True:
            async with self._uow.read() as tx:
                rows = await tx.readings.between(device.device_no, since_ms, span.until_ms, PAGE_MESSAGES, newest_first=False)
            rows, since_ms = _whole_instants(rows)
            if not rows:
                return
            yield [names.reading(unpacked) for unpacked in self._engine.unpack(rows, number)]

    async def _visible(self, tx: TelemetryTx, caller: Caller, device_id: DeviceId) -> Device:
        device = await device_of(tx, caller.account_id, device_id)
        await self._gate.permit(tx, caller, device, command=None, is_query=True, now_ms=self._clock.now_ms())
        return device

    async def _names(self, tx: TelemetryTx, device: Device) -> _Names:
        return _Names({number: (name, unit) for number, name, unit in await tx.readings.metrics(device.device_no)})

    async def _pages(
        self, tx: TelemetryTx, device: Device, span: Span, *, newest_first: bool
    ) -> AsyncIterator[Sequence[tuple[int, bytes]]]:
        until_ms, scanned = span.until_ms, 0
        while scanned < MAX_SCANNED_MESSAGES:
            rows = await tx.readings.between(device.device_no, span.since_ms, until_ms, PAGE_MESSAGES, newest_first=newest_first)
            rows, until_ms = _whole_instants_back(rows)
            if not rows:
                return
            scanned += len(rows)
            yield rows


def _whole_instants(rows: Sequence[tuple[int, bytes]]) -> tuple[Sequence[tuple[int, bytes]], int]:
    """Cut a full page before its last instant, which may go on in the next one; the instant to go on from."""
    if not rows:
        return rows, 0
    last = rows[-1][0]
    if len(rows) < PAGE_MESSAGES or rows[0][0] == last:
        return rows, last + 1
    return [row for row in rows if row[0] != last], last


def _whole_instants_back(rows: Sequence[tuple[int, bytes]]) -> tuple[Sequence[tuple[int, bytes]], int]:
    """The same for pages that go back in time: the instant before which the next page begins (exclusive)."""
    if not rows:
        return rows, 0
    last = rows[-1][0]
    if len(rows) < PAGE_MESSAGES or rows[0][0] == last:
        return rows, last
    return [row for row in rows if row[0] != last], last + 1


def _count(tally: dict[tuple[int, int], list[float]], key: tuple[int, int], value: float) -> None:
    entry = tally.get(key)
    if entry is None:
        tally[key] = [value, value, value, 1.0]
        return
    entry[0] = min(entry[0], value)
    entry[1] = max(entry[1], value)
    entry[2] += value
    entry[3] += 1.0


def _plain(metric: str, value: bool | float | str, unit: str | None, at_ms: int) -> Reading:
    """A boolean reads as 1 or 0 with its word, text as text."""
    if isinstance(value, bool):
        return Reading(metric, float(value), "true" if value else "false", unit, at_ms)
    if isinstance(value, str):
        return Reading(metric, None, value, unit, at_ms)
    return Reading(metric, value, None, unit, at_ms)
