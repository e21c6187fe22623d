"""Ports of the schedules part."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from domain.commands.ports import CommandsTx
from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.errors import FieldError
from domain.kernel.ids import AccountId, DeviceId, ScheduleId
from domain.schedules.model import DecidedScheduleEdge, OfflineScheduleEdge, Schedule, SwitchEdge


class ScheduleRepository(Protocol):
    async def add(self, schedule: Schedule) -> None: ...

    async def save(self, schedule: Schedule) -> None: ...

    async def get_by_slot(self, device_id: DeviceId, slot: int) -> Schedule | None:
        """The PENDING or ACTIVE schedule of a slot. A writing transaction locks it: no other one can decide its edges."""

    async def list_active(self, device_id: DeviceId) -> Sequence[Schedule]:
        """PENDING and ACTIVE schedules, by slot."""

    async def list_active_by_devices(self, device_ids: Collection[DeviceId]) -> Sequence[Schedule]:
        """`list_active` of many devices, in no particular device order."""

    async def list_active_by_account(self, account_id: AccountId) -> Sequence[Schedule]:
        """`list_active` of all devices of an account, by device and slot."""

    async def list_history(
        self, device_id: DeviceId, limit: int, after: Position | None = None, ended: TimeSpan = ANY_TIME
    ) -> Sequence[Schedule]:
        """COMPLETED and CANCELLED schedules, newest first, behind the position: (time of the last change in Unix ms, `seq`)."""

    async def list_due(self, now_ts: int, limit: int, once_after_ts: int = 0) -> Sequence[Schedule]:
        """Enabled PENDING and ACTIVE schedules with `next_fire_ts` ≤ `now_ts`, earliest first; those without a rule only where
        it is after `once_after_ts`. PostgreSQL locks the rows and skips rows that other transactions have locked."""

    async def next_due_ts(self, once_after_ts: int = 0) -> int | None: ...

    async def list_decided_after(self, at_ms: int, limit: int) -> Sequence[Schedule]:
        """PENDING, ACTIVE and COMPLETED schedules with a rule that were last changed after `at_ms`. Locked like those of
        `list_due`."""

    async def forget_skipped_edges(self, schedule_ids: Collection[ScheduleId], from_ts: int) -> None:
        """Delete the records of edges from `from_ts` on that did not run and that no device holds."""

    async def list_decided_edges(
        self, schedule_ids: Collection[ScheduleId], from_ts: int
    ) -> Sequence[tuple[ScheduleId, int, SwitchEdge, int]]:
        """Schedule, revision, edge and second of the recorded edges from `from_ts` on."""

    async def save_decisions(self, schedules: Sequence[Schedule], edges: Sequence[DecidedScheduleEdge]) -> None:
        """Write the state of the decided slots and the records of their edges. Raises Conflict, at the latest on commit, when
        one of the edges is already recorded."""

    async def set_withdrawn(self, schedule_ids: Collection[ScheduleId], withdrawn: bool) -> None:
        """Change nothing else of them."""

    async def list_by_ids(self, schedule_ids: Collection[ScheduleId]) -> Sequence[Schedule]:
        """In any status. A writing transaction locks them."""

    async def add_left(self, edges: Sequence[OfflineScheduleEdge]) -> None:
        """Record edges that are left to their offline devices; `Device.has_left_edges` is true from then on."""

    async def list_left_by_devices(self, device_ids: Collection[DeviceId]) -> Sequence[OfflineScheduleEdge]: ...

    async def list_left_to_resolve(self, limit: int) -> Sequence[OfflineScheduleEdge]:
        """Those of online devices, and those that no device holds. Earliest time to resolve first, those without one before."""

    async def set_plan_held(self, edges: Sequence[OfflineScheduleEdge], holds: bool) -> None: ...

    async def set_resolve_time(self, edges: Sequence[OfflineScheduleEdge], resolve_ms: int) -> None: ...

    async def take_left(self, edges: Sequence[OfflineScheduleEdge]) -> Sequence[OfflineScheduleEdge]:
        """Delete these left edges. Returns those that this call deleted."""

    async def save_resolved(self, schedule: Schedule, edge: DecidedScheduleEdge) -> None:
        """Write the state of the schedule, and the outcome of an edge that is recorded already."""

    async def delete_older_than(self, updated_ms: int, limit: int) -> int:
        """Delete finished schedules and their edges. Returns how many."""


class RecurrenceCalculator(Protocol):
    """RFC 5545 in an IANA zone (python-dateutil outside), on the wall clock of that zone.

    `first_ts` is the first occurrence. `paired_ts`, where given, is another instant that belongs to the first occurrence; every
    later occurrence has its own, at the same distance on the wall clock, and the question is about these instead.
    A local time that a change to summer time leaves out falls on the first instant after the gap; one that comes twice counts
    the first time only.
    """

    def is_known_timezone(self, timezone: str) -> bool: ...

    def find_error(self, rrule: str, timezone: str, first_ts: int, paired_ts: int) -> FieldError | None:
        """What is wrong with the rule, by the wire's name of the field, or None. The zone is known."""

    def next_occurrence(
        self, rrule: str, timezone: str, first_ts: int, after_ts: int, *, paired_ts: int | None = None
    ) -> int | None:
        """The first occurrence strictly after `after_ts` (Unix seconds); None when the rule has ended. `problem` was None."""


class SchedulesTx(CommandsTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def schedules(self) -> ScheduleRepository: ...
