"""Reading telemetry back: the latest values, the history, and whole exports in bounded pages. Downsampled: `stretches.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from domain.devices.lookup import device_of
from domain.devices.model import Device
from domain.grants.service import Gate
from domain.kernel.caller import Caller
from domain.kernel.clock import DAY_MS, Clock
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import TelemetryEngine, Unpacked
from domain.telemetry.model import Reading
from domain.telemetry.paging import Span, page, pages
from domain.telemetry.ports import Place, TelemetryTx

PAGE_MESSAGES = 1_000
EXPORTED_MESSAGES = 250
"""A page of an export. Between pages others have their turn: some five milliseconds, not twenty."""
MAX_SCANNED_MESSAGES = 200_000
"""A query for a rare metric reads no further back than this many messages; narrow it with `since` and `until`."""
NEWEST_ROWS = 200
"""Messages an engine that follows is shown before it is asked: a metric that is rarer than that is as new as the start."""


@dataclass(frozen=True, slots=True)
class Latest:
    device: Device
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """The device's metrics: number → (name, unit)."""

    by_no: dict[int, tuple[str, str | None]]

    @classmethod
    async def of(cls, tx: TelemetryTx, device: Device) -> Names:
        return cls({number: (name, unit) for number, name, unit in await tx.readings.metrics(device.device_no)})

    def of_metric(self, number: int) -> tuple[str, str | None]:
        return self.by_no.get(number, (f"#{number}", None))

    def number(self, metric: str) -> int | None:
        return next((number for number, (name, _) in self.by_no.items() if name == metric), None)

    def reading(self, unpacked: Unpacked) -> Reading:
        at_ms, number, value, text = unpacked
        name, unit = self.of_metric(number)
        return Reading(name, value, text, unit, at_ms)


class TelemetryService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[TelemetryTx],
        clock: Clock,
        engine: TelemetryEngine,
        gate: Gate,
        follows: Callable[[], bool] = lambda: False,
    ) -> None:
        """`follows`: whether another instance takes the telemetry in now. Then our engine is shown what is new before it is
        asked."""
        self._uow = uow
        self._clock = clock
        self._follows = follows
        self._engine = engine
        self._gate = gate

    async def latest(self, caller: Caller, device_id: DeviceId) -> Latest:
        """Straight from the engine: the last value of each metric, by name."""
        async with self._uow.read() as tx:
            device = await self._visible(tx, caller, device_id)
            if self._follows():
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
            names = await Names.of(tx, device)
            number = None if metric is None else names.number(metric)
            if metric is not None and number is None:
                return []
            scanned = 0
            async for rows in pages(tx, device.device_no, span, PAGE_MESSAGES):
                found += [names.reading(unpacked) for unpacked in self._engine.unpack(rows, number)]
                scanned += len(rows)
                if len(found) >= limit or scanned >= MAX_SCANNED_MESSAGES:
                    break
        return found[:limit]

    async def export(
        self, caller: Caller, device_id: DeviceId, span: Span, *, metric: str | None
    ) -> AsyncIterator[list[Reading]]:
        """Oldest first, a page of messages at a time; each page is its own short read, so that an export holds nothing up.

        Refusals are raised with the first page."""
        async with self._uow.read() as tx:
            device = await self._visible(tx, caller, device_id)
            names = await Names.of(tx, device)
        number = None if metric is None else names.number(metric)
        if metric is not None and number is None:
            return
        after: Place | None = None
        while True:
            async with self._uow.read() as tx:
                rows, after = await page(tx, device.device_no, span, EXPORTED_MESSAGES, after, newest_first=False)
            yield [names.reading(unpacked) for unpacked in self._engine.unpack(rows, number)]
            if after is None:
                return

    async def _visible(self, tx: TelemetryTx, caller: Caller, device_id: DeviceId) -> Device:
        return await visible(tx, self._gate, caller, device_id, self._clock.now_ms())


async def visible(tx: TelemetryTx, gate: Gate, caller: Caller, device_id: DeviceId, now_ms: int) -> Device:
    """The device, for whom may read it. Raises NotFound, Refused."""
    device = await device_of(tx, caller.account_id, device_id)
    await gate.permit(tx, caller, device, command=None, is_query=True, now_ms=now_ms)
    return device


def _plain(metric: str, value: bool | float | str, unit: str | None, at_ms: int) -> Reading:
    """A boolean reads as 1 or 0 with its word, text as text."""
    if isinstance(value, bool):
        return Reading(metric, float(value), "true" if value else "false", unit, at_ms)
    if isinstance(value, str):
        return Reading(metric, None, value, unit, at_ms)
    return Reading(metric, value, None, unit, at_ms)
