"""The planned switches of an account's devices in a stretch of time, for a calendar.

Only what is still to come is planned: an edge before the next one of its schedule has been decided already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.kernel.caller import SessionCaller
from domain.kernel.clock import DAY_MS, SECOND_MS, Clock
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.schedules.due_edges import next_occurrence_ts
from domain.schedules.model import Schedule, SwitchEdge
from domain.schedules.ports import HasSchedules, RecurrenceCalculator

DEFAULT_SPAN_MS = 7 * DAY_MS
MAX_SPAN_MS = 35 * DAY_MS
MAX_OCCURRENCES = 1_500
"""Working out one recurrence costs up to 0.1 ms on the event loop."""


@dataclass(frozen=True, slots=True)
class PlannedScheduleEdge:
    schedule: Schedule
    device: Device
    edge: SwitchEdge
    at_ts: int


@dataclass(frozen=True, slots=True)
class ScheduleOccurrencesResult:
    """By schedule, then by time. `is_complete` is False if there are more than `MAX_OCCURRENCES`."""

    occurrences: Sequence[PlannedScheduleEdge]
    is_complete: bool


class ScheduleCalendarTx(HasDevices, HasSchedules, Protocol): ...


class ScheduleOccurrenceService:
    def __init__(self, *, uow: UnitOfWork[ScheduleCalendarTx], clock: Clock, recurrence: RecurrenceCalculator) -> None:
        self._uow = uow
        self._clock = clock
        self._recurrence = recurrence

    async def list(
        self, caller: SessionCaller, from_ms: int | None = None, until_ms: int | None = None
    ) -> ScheduleOccurrencesResult:
        """Switches from `from_ms` (default: now) until before `until_ms` (default: a week later), of paused slots too. Raises
        ValidationFailed."""
        from_ms = self._clock.now_ms() if from_ms is None else from_ms
        until_ms = from_ms + DEFAULT_SPAN_MS if until_ms is None else until_ms
        if not from_ms < until_ms <= from_ms + MAX_SPAN_MS:
            raise ValidationFailed.for_field("until", f"must be after `from`, by at most {MAX_SPAN_MS // DAY_MS} days.")
        async with self._uow.read() as tx:
            schedules = await tx.schedules.list_active_by_account(caller.account_id)
            devices = await tx.devices.list_by_ids({schedule.device_id for schedule in schedules})
        by_id: Mapping[DeviceId, Device] = {device.device_id: device for device in devices}
        found: list[PlannedScheduleEdge] = []
        for schedule in schedules:
            device = by_id.get(schedule.device_id)
            if device is None:
                continue
            for edge, at_ts in self._edges(schedule, from_ms // SECOND_MS, until_ms // SECOND_MS):
                if len(found) >= MAX_OCCURRENCES:
                    return ScheduleOccurrencesResult(found, False)
                found.append(PlannedScheduleEdge(schedule, device, edge, at_ts))
        return ScheduleOccurrencesResult(found, True)

    def _edges(self, schedule: Schedule, from_ts: int, until_ts: int) -> Iterator[tuple[SwitchEdge, int]]:
        start_ts = max(from_ts, schedule.next_fire_ts or from_ts)
        for edge in SwitchEdge:
            after_ts = start_ts - 1
            while (at_ts := next_occurrence_ts(schedule, edge, after_ts, self._recurrence)) is not None and at_ts < until_ts:
                yield edge, at_ts
                after_ts = at_ts
