"""Ports of the schedules part."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from domain.commands.ports import AutomationTx
from domain.devices.ports import HasDevices
from domain.kernel.errors import FieldFault
from domain.kernel.ids import DeviceId, ScheduleId
from domain.kernel.unit_of_work import Transaction
from domain.schedules.model import Schedule, ScheduleEdgeRecord


class ScheduleRepository(Protocol):
    async def add(self, schedule: Schedule) -> None: ...

    async def save(self, schedule: Schedule) -> None: ...

    async def get_by_slot(self, device_id: DeviceId, slot: int) -> Schedule | None:
        """The PENDING or ACTIVE schedule of a slot. A writing transaction locks it: no other one can decide its edges."""
        ...

    async def list_active(self, device_id: DeviceId) -> Sequence[Schedule]:
        """PENDING and ACTIVE schedules, by slot."""
        ...

    async def list_active_by_devices(self, device_ids: Collection[DeviceId]) -> Sequence[Schedule]:
        """`list_active` of many devices, in no particular device order."""
        ...

    async def list_history(self, device_id: DeviceId, limit: int, before: ScheduleId | None = None) -> Sequence[Schedule]:
        """COMPLETED and CANCELLED schedules, newest first; with `before`, those that follow it in this order."""
        ...

    async def list_due(self, now_ts: int, limit: int) -> Sequence[Schedule]:
        """Enabled PENDING and ACTIVE schedules with `next_fire_ts` ≤ `now_ts`, earliest first. PostgreSQL locks the rows and
        skips rows that other transactions have locked."""
        ...

    async def next_due_ts(self) -> int | None: ...

    async def save_decisions(self, schedules: Sequence[Schedule], edges: Sequence[ScheduleEdgeRecord]) -> None:
        """Write the state of the decided slots and the records of their edges. Raises Conflict, at the latest on commit, when
        one of the edges is already recorded."""
        ...

    async def delete_older_than(self, updated_ms: int, limit: int) -> int:
        """Delete finished schedules and their edges. Returns how many."""
        ...


class HasSchedules(Protocol):
    @property
    def schedules(self) -> ScheduleRepository: ...


class DevicePlanTx(Transaction, HasDevices, HasSchedules, Protocol): ...


class ScheduleTx(AutomationTx, DevicePlanTx, Protocol): ...


class Recurrence(Protocol):
    """RFC 5545 in an IANA zone (python-dateutil outside), on the wall clock of that zone.

    `first_ts` is the first occurrence. `paired_ts`, where given, is another instant that belongs to the first occurrence; every
    later occurrence has its own, at the same distance on the wall clock, and the question is about these instead.
    A local time that a change to summer time leaves out falls on the first instant after the gap; one that comes twice counts
    the first time only.
    """

    def is_known_timezone(self, timezone: str) -> bool: ...

    def find_error(self, rrule: str, timezone: str, first_ts: int, paired_ts: int) -> FieldFault | None:
        """What is wrong with the rule, by the wire's name of the field, or None. The zone is known."""
        ...

    def next_occurrence(
        self, rrule: str, timezone: str, first_ts: int, after_ts: int, *, paired_ts: int | None = None
    ) -> int | None:
        """The first occurrence strictly after `after_ts` (Unix seconds); None when the rule has ended. `problem` was None."""
        ...
