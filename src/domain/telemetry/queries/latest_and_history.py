"""Reading telemetry back: the latest values, the history, and whole exports in bounded pages. Downsampled: `stretches.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from domain.devices.lookup import get_device
from domain.devices.model import Device
from domain.grants.authorizer import Authorizer
from domain.kernel.caller import Caller
from domain.kernel.clock import DAY_MS, Clock
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.engine_port import TelemetryEngine, UnpackedReading
from domain.telemetry.model import Reading
from domain.telemetry.ports import MessageKey, TelemetryTx
from domain.telemetry.queries.paging import TimeRange, iterate_pages, read_page

PAGE_MESSAGES = 1_000
EXPORT_PAGE_MESSAGES = 250
"""A page of an export. Between pages others have their turn: some five milliseconds, not twenty."""
MAX_SCANNED_MESSAGES = 200_000
"""A query for a rare metric reads no further back than this many messages; narrow it with `since` and `until`."""
FOLLOWER_REPLAY_ROWS = 200
"""Messages an engine that follows is shown before it is asked: a metric that is rarer than that is as new as the start."""


@dataclass(frozen=True, slots=True)
class DeviceLatestReadings:
    device: Device
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class MetricNames:
    """The device's metrics: number → (name, unit)."""

    by_number: dict[int, tuple[str, str | None]]

    @classmethod
    async def load(cls, tx: TelemetryTx, device: Device) -> MetricNames:
        return cls({number: (name, unit) for number, name, unit in await tx.readings.list_device_metrics(device.device_no)})

    def name_and_unit(self, number: int) -> tuple[str, str | None]:
        return self.by_number.get(number, (f"#{number}", None))

    def find_number(self, metric: str) -> int | None:
        return next((number for number, (name, _) in self.by_number.items() if name == metric), None)

    def to_reading(self, unpacked: UnpackedReading) -> Reading:
        at_ms, number, value, text = unpacked
        name, unit = self.name_and_unit(number)
        return Reading(name, value, text, unit, at_ms)


class TelemetryQueryService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[TelemetryTx],
        clock: Clock,
        engine: TelemetryEngine,
        gate: Authorizer,
        follows: Callable[[], bool] = lambda: False,
    ) -> None:
        """`follows`: whether another instance takes the telemetry in now. Then our engine is shown what is new before it is
        asked."""
        self._uow = uow
        self._clock = clock
        self._is_follower = follows
        self._engine = engine
        self._authorizer = gate

    async def latest(self, caller: Caller, device_id: DeviceId) -> DeviceLatestReadings:
        """Straight from the engine: the last value of each metric, by name."""
        async with self._uow.read() as tx:
            device = await self._get_readable_device(tx, caller, device_id)
            if self._is_follower():
                await self._replay_newest(tx, device)
        values = sorted(self._engine.latest(device.device_no), key=lambda reading: reading.metric)
        return DeviceLatestReadings(device, tuple(_to_reading(r.metric, r.value, r.unit, r.ts_ms) for r in values))

    async def _replay_newest(self, tx: TelemetryTx, device: Device) -> None:
        self._engine.add_metric_names(await tx.readings.list_metric_names())
        rows = await tx.readings.list_between(device.device_no, 0, self._clock.now_ms() + DAY_MS + 1, FOLLOWER_REPLAY_ROWS)
        for at_ms, packed in reversed(rows):
            self._engine.replay(device.device_no, at_ms, packed)

    async def history(
        self, caller: Caller, device_id: DeviceId, span: TimeRange, *, metric: str | None, limit: int
    ) -> list[Reading]:
        """At most `limit` readings, newest first. Raises NotFound, Refused."""
        found: list[Reading] = []
        async with self._uow.read() as tx:
            device = await self._get_readable_device(tx, caller, device_id)
            names = await MetricNames.load(tx, device)
            number = None if metric is None else names.find_number(metric)
            if metric is not None and number is None:
                return []
            scanned = 0
            async for rows in iterate_pages(tx, device.device_no, span, PAGE_MESSAGES):
                found += [names.to_reading(unpacked) for unpacked in self._engine.unpack_readings(rows, number)]
                scanned += len(rows)
                if len(found) >= limit or scanned >= MAX_SCANNED_MESSAGES:
                    break
        return found[:limit]

    async def export(
        self, caller: Caller, device_id: DeviceId, span: TimeRange, *, metric: str | None
    ) -> AsyncIterator[list[Reading]]:
        """Oldest first, a page of messages at a time; each page is its own short read, so that an export holds nothing up.

        Refusals are raised with the first page."""
        async with self._uow.read() as tx:
            device = await self._get_readable_device(tx, caller, device_id)
            names = await MetricNames.load(tx, device)
        number = None if metric is None else names.find_number(metric)
        if metric is not None and number is None:
            return
        after: MessageKey | None = None
        while True:
            async with self._uow.read() as tx:
                rows, after = await read_page(tx, device.device_no, span, EXPORT_PAGE_MESSAGES, after, newest_first=False)
            yield [names.to_reading(unpacked) for unpacked in self._engine.unpack_readings(rows, number)]
            if after is None:
                return

    async def _get_readable_device(self, tx: TelemetryTx, caller: Caller, device_id: DeviceId) -> Device:
        return await get_readable_device(tx, self._authorizer, caller, device_id, self._clock.now_ms())


async def get_readable_device(tx: TelemetryTx, gate: Authorizer, caller: Caller, device_id: DeviceId, now_ms: int) -> Device:
    """The device, for whom may read it. Raises NotFound, Refused."""
    device = await get_device(tx, caller.account_id, device_id)
    await gate.authorize(tx, caller, device, command=None, is_query=True, now_ms=now_ms)
    return device


def _to_reading(metric: str, value: bool | float | str, unit: str | None, at_ms: int) -> Reading:
    """A boolean reads as 1 or 0 with its word, text as text."""
    if isinstance(value, bool):
        return Reading(metric, float(value), "true" if value else "false", unit, at_ms)
    if isinstance(value, str):
        return Reading(metric, None, value, unit, at_ms)
    return Reading(metric, value, None, unit, at_ms)
