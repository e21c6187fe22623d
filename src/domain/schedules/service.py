"""Use cases of slots: put, edit, cancel, look, and plan ahead.

Putting a slot replaces what it held: the old schedule is cancelled and stays in the history, the new one begins with revision 1.
Editing keeps the schedule and counts its revision up. Both are one transaction with the firmware's plan and the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from domain.commands.model import CommandDefinition
from domain.commands.submission import CommandSubmissionService, action_fault
from domain.devices.lookup import get_device
from domain.devices.messages import PlanRow
from domain.devices.model import Device
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.checks import is_portable_timezone
from domain.kernel.clock import ANY_TIME, DAY_MS, SECOND_MS, Clock, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, event_of
from domain.kernel.errors import FieldError, NotFound, ValidationFailed
from domain.kernel.ids import DeviceId, IdAndSecretGenerator, IdPrefix, ScheduleId
from domain.kernel.unit_of_work import UnitOfWork
from domain.schedules import edges
from domain.schedules.device_plan import DevicePlanSyncService, is_firmware_synced
from domain.schedules.edges import initial_edge, next_occurrence_ts
from domain.schedules.model import (
    DEFAULT_MISFIRE_GRACE_S,
    MIN_MISFIRE_GRACE_S,
    PLAIN_OFF,
    PLAIN_ON,
    SLOTS_PER_DEVICE,
    MisfirePolicy,
    Schedule,
    ScheduledCommand,
    ScheduleStatus,
    SwitchEdge,
)
from domain.schedules.ports import RecurrenceCalculator, SchedulesTx

MAX_LABEL_LENGTH = 64
MAX_MISFIRE_GRACE_S = 24 * 3_600
MILLISECONDS_THRESHOLD = 10**11
"""As seconds this is the year 5138, as milliseconds 1973: a larger value is in milliseconds."""
HISTORY_LIMIT = 100
RECENT_HISTORY_LIMIT = 20
"""How many schedules to search for the last one of a slot."""
DEFAULT_SPAN_MS = 7 * DAY_MS
MAX_SPAN_MS = 35 * DAY_MS
MAX_OCCURRENCES = 1_500
"""Working out one recurrence costs up to 0.1 ms on the event loop."""


@dataclass(frozen=True, slots=True)
class ScheduleWithSyncState:
    """A schedule, and whether the device stores its current version."""

    schedule: Schedule
    firmware_synced: bool


@dataclass(frozen=True, slots=True)
class ScheduleInput:
    """The fields of a slot that people edit."""

    on_ts: int
    off_ts: int
    label: str = ""
    enabled: bool = True
    on_command: ScheduledCommand = PLAIN_ON
    off_command: ScheduledCommand = PLAIN_OFF
    rrule: str | None = None
    timezone: str = "UTC"
    misfire: MisfirePolicy = MisfirePolicy.FIRE
    misfire_grace_s: int = DEFAULT_MISFIRE_GRACE_S


@service
class ScheduleService:
    uow: UnitOfWork[SchedulesTx]
    clock: Clock
    ids: IdAndSecretGenerator
    recurrence: RecurrenceCalculator
    commands: CommandSubmissionService
    plans: DevicePlanSyncService
    wake: Callable[[], None]

    def with_unit_of_work(self, uow: UnitOfWork[SchedulesTx]) -> ScheduleService:
        """The same use cases inside a transaction that is open already."""
        return replace(self, uow=uow)

    async def list(self, caller: SessionCaller, device_id: DeviceId) -> Sequence[ScheduleWithSyncState]:
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
            return [_schedule_view(device, schedule) for schedule in await tx.schedules.list_active(device_id)]

    async def get(self, caller: SessionCaller, device_id: DeviceId, slot: int) -> ScheduleWithSyncState:
        """The PENDING or ACTIVE schedule of the slot. Raises NotFound for an empty slot."""
        check_slot(slot)
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
            schedule = await tx.schedules.get_by_slot(device_id, slot)
        if schedule is None:
            raise NotFound(f"Slot {slot} of this device is empty.")
        return _schedule_view(device, schedule)

    async def list_history(
        self,
        caller: SessionCaller,
        device_id: DeviceId,
        *,
        limit: int = HISTORY_LIMIT,
        after: Position | None = None,
        ended: TimeSpan = ANY_TIME,
    ) -> Sequence[ScheduleWithSyncState]:
        """Ended schedules, newest first, behind the position: (`updated_ms`, `seq`). Raises NotFound."""
        async with self.uow.read() as tx:
            await get_device(tx, caller.account_id, device_id)
            found = await tx.schedules.list_history(device_id, limit, after, ended)
        return [ScheduleWithSyncState(schedule, False) for schedule in found]

    async def list_schedulable_commands(self, caller: SessionCaller, device_id: DeviceId) -> Sequence[CommandDefinition]:
        """The commands a slot of this device may run."""
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
            definitions = await self.commands.effective_definitions(tx, device)
        return [definition for definition in definitions if not definition.requires_approval]

    async def put(
        self, caller: SessionCaller, device_id: DeviceId, slot: int, schedule_input: ScheduleInput
    ) -> ScheduleWithSyncState:
        """Create or replace a slot. Raises ValidationFailed, NotFound, PermissionDenied."""
        require_role(caller, Role.MEMBER)
        check_slot(slot)
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER) as tx:
            device = await get_device(tx, caller.account_id, device_id)
            return await self.put_in_transaction(tx, caller, device, slot, schedule_input, now_ms)

    async def update(
        self, caller: SessionCaller, device_id: DeviceId, slot: int, changes: Mapping[str, Any]
    ) -> ScheduleWithSyncState:
        """Change fields of `ScheduleInput` in a slot; fills an empty slot if both times are given."""
        require_role(caller, Role.MEMBER)
        check_slot(slot)
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER) as tx:
            device = await get_device(tx, caller.account_id, device_id)
            before = await tx.schedules.get_by_slot(device_id, slot)
            if before is None:
                if not {"on_ts", "off_ts"} <= changes.keys():
                    raise NotFound(f"Slot {slot} of this device is empty. Set onTs and offTs to fill it.")
                return await self.put_in_transaction(tx, caller, device, slot, ScheduleInput(**changes), now_ms)
            rows = await self.plans.plan_rows(tx, device)
            schedule = replace(before, **changes, created_by=caller.membership_id, updated_ms=now_ms, withdrawn=False)
            await self._check_schedule(tx, caller, device, schedule, now_ms)
            schedule = _prepare_for_save(schedule, before, now_ms // 1000, self.recurrence)
            await tx.schedules.save(schedule)
            self._emit_change(tx, caller, device, schedule, "schedule_updated", now_ms)
            return await self._revise_plan(tx, device, schedule, rows)

    async def cancel(self, caller: SessionCaller, device_id: DeviceId, slot: int) -> None:
        """Raises NotFound for an empty slot."""
        require_role(caller, Role.MEMBER)
        check_slot(slot)
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER) as tx:
            await self.cancel_in_transaction(tx, caller, await get_device(tx, caller.account_id, device_id), slot, now_ms)

    async def cancel_in_transaction(self, tx: SchedulesTx, caller: SessionCaller, device: Device, slot: int, now_ms: int) -> None:
        """`cancel` as a part of the caller's transaction. When it raises, it has written nothing."""
        before = await tx.schedules.get_by_slot(device.device_id, slot)
        if before is None:
            raise NotFound(f"Slot {slot} of this device is empty already.")
        rows = await self.plans.plan_rows(tx, device)
        cancelled = edges.cancel(before, now_ms)
        await tx.schedules.save(cancelled)
        self._emit_change(tx, caller, device, cancelled, "schedule_cancelled", now_ms)
        await self.plans.revise_if_changed(tx, device, rows)

    async def put_in_transaction(
        self, tx: SchedulesTx, caller: SessionCaller, device: Device, slot: int, schedule_input: ScheduleInput, now_ms: int
    ) -> ScheduleWithSyncState:
        """`put` as a part of the caller's transaction. When it raises, it has written nothing."""
        schedule = self._new_schedule(caller, device, slot, schedule_input, now_ms)
        cmds = [(each.command, each.channel) for each in (schedule.on_command, schedule.off_command)]
        await self.commands.authorize_replay(tx, caller, device, cmds, now_ms)
        await self._check_schedule(tx, caller, device, schedule, now_ms)
        current = await tx.schedules.get_by_slot(device.device_id, slot)
        before = current or await _last_schedule_in_slot(tx, device.device_id, slot)
        rows = await self.plans.plan_rows(tx, device)
        schedule = _prepare_for_save(schedule, before, now_ms // 1000, self.recurrence)
        if current is not None:
            await tx.schedules.save(edges.cancel(current, now_ms))
        await tx.schedules.add(schedule)
        kind: EventKind = "schedule_created" if current is None else "schedule_replaced"
        self._emit_change(tx, caller, device, schedule, kind, now_ms)
        return await self._revise_plan(tx, device, schedule, rows)

    def _new_schedule(
        self, caller: SessionCaller, device: Device, slot: int, schedule_input: ScheduleInput, now_ms: int
    ) -> Schedule:
        return Schedule(
            schedule_id=ScheduleId(self.ids.new_id(IdPrefix.SCHEDULE)),
            account_id=device.account_id,
            device_id=device.device_id,
            device_no=device.device_no,
            slot=slot,
            status=ScheduleStatus.PENDING,
            revision=1,
            next_fire_ts=None,
            next_edge=None,
            last_fired_ms=None,
            last_outcome=None,
            created_by=caller.membership_id,
            created_ms=now_ms,
            updated_ms=now_ms,
            **{each.name: getattr(schedule_input, each.name) for each in fields(schedule_input)},
        )

    async def _check_schedule(
        self, tx: SchedulesTx, caller: SessionCaller, device: Device, schedule: Schedule, now_ms: int
    ) -> None:
        _check_fields(schedule, self.recurrence)
        for field, slot_command in (("onCommand", schedule.on_command), ("offCommand", schedule.off_command)):
            try:
                await self.commands.check_unattended(
                    tx, caller, device, slot_command.command, slot_command.params, slot_command.channel, now_ms
                )
            except ValidationFailed as error:
                raise action_fault(field, error) from None

    async def _revise_plan(
        self, tx: SchedulesTx, device: Device, schedule: Schedule, rows: tuple[PlanRow, ...]
    ) -> ScheduleWithSyncState:
        if await self.plans.revise_if_changed(tx, device, rows):
            return ScheduleWithSyncState(schedule, False)
        return _schedule_view(device, schedule)

    def _emit_change(
        self, tx: SchedulesTx, caller: SessionCaller, device: Device, schedule: Schedule, kind: EventKind, now_ms: int
    ) -> None:
        event = event_of(
            caller,
            kind,
            f"Slot {schedule.slot}: {kind.replace('_', ' ')}",
            now_ms,
            device,
            scheduleId=schedule.schedule_id,
            slot=schedule.slot,
            onTs=schedule.on_ts,
            offTs=schedule.off_ts,
            enabled=schedule.enabled,
        )
        tx.emit(event)
        tx.after_commit(self.wake)


async def _last_schedule_in_slot(tx: SchedulesTx, device_id: DeviceId, slot: int) -> Schedule | None:
    """The last schedule of an empty slot: its edges that have just run must not run again."""
    recent = await tx.schedules.list_history(device_id, RECENT_HISTORY_LIMIT)
    return next((schedule for schedule in recent if schedule.slot == slot), None)


def _schedule_view(device: Device, schedule: Schedule) -> ScheduleWithSyncState:
    return ScheduleWithSyncState(schedule, is_firmware_synced(device, schedule))


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


@service
class ScheduleOccurrenceService:
    """The planned switches of an account's devices in a stretch of time, for a calendar. Only what is still to come is planned:
    an edge before the next one of its schedule has been decided already."""

    uow: UnitOfWork[SchedulesTx]
    clock: Clock
    recurrence: RecurrenceCalculator

    async def list(
        self, caller: SessionCaller, from_ms: int | None = None, until_ms: int | None = None
    ) -> ScheduleOccurrencesResult:
        """Switches from `from_ms` (default: now) until before `until_ms` (default: a week later), of paused slots too. Raises
        ValidationFailed."""
        from_ms = self.clock.now_ms() if from_ms is None else from_ms
        until_ms = from_ms + DEFAULT_SPAN_MS if until_ms is None else until_ms
        if not from_ms < until_ms <= from_ms + MAX_SPAN_MS:
            raise ValidationFailed.for_field("until", f"must be after `from`, by at most {MAX_SPAN_MS // DAY_MS} days.")
        async with self.uow.read() as tx:
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
            while (at_ts := next_occurrence_ts(schedule, edge, after_ts, self.recurrence)) is not None and at_ts < until_ts:
                yield edge, at_ts
                after_ts = at_ts


def check_slot(slot: int) -> None:
    """Raises ValidationFailed."""
    faults = list(_slot_errors(slot))
    if faults:
        raise ValidationFailed.for_field(faults[0].field, faults[0].message)


def _check_fields(schedule: Schedule, recurrence: RecurrenceCalculator) -> None:
    """Raises ValidationFailed that names every invalid field."""
    faults = list(_field_errors(schedule))
    if not (is_portable_timezone(schedule.timezone) and recurrence.is_known_timezone(schedule.timezone)):
        message = f"{schedule.timezone[:64]!r} is not an IANA time zone such as Europe/Berlin or UTC."
        faults.append(FieldError("timezone", message))
    elif schedule.rrule is not None and not faults:
        fault = recurrence.find_error(schedule.rrule, schedule.timezone, schedule.on_ts, schedule.off_ts)
        faults += [fault] if fault else []
    if faults:
        raise ValidationFailed(f"The schedule is not valid: {faults[0].field}: {faults[0].message}", details=faults)


def _field_errors(schedule: Schedule) -> Iterator[FieldError]:
    yield from _slot_errors(schedule.slot)
    for field, ts in (("onTs", schedule.on_ts), ("offTs", schedule.off_ts)):
        if ts >= MILLISECONDS_THRESHOLD:
            yield FieldError(field, f"must be in Unix seconds; {ts} looks like milliseconds. Divide it by 1000.")
        elif ts <= 0:
            yield FieldError(field, "must be in Unix seconds, after 1970.")
    if schedule.on_ts == schedule.off_ts:
        yield FieldError("offTs", "must differ from onTs; a slot cannot switch on and off in the same second.")
    if len(schedule.label) > MAX_LABEL_LENGTH:
        yield FieldError("label", f"must have at most {MAX_LABEL_LENGTH} characters.")
    if not MIN_MISFIRE_GRACE_S <= schedule.misfire_grace_s <= MAX_MISFIRE_GRACE_S:
        yield FieldError("misfireGraceSeconds", f"must be {MIN_MISFIRE_GRACE_S} to {MAX_MISFIRE_GRACE_S} seconds.")


def _slot_errors(slot: int) -> Iterator[FieldError]:
    if not 0 <= slot < SLOTS_PER_DEVICE:
        yield FieldError("slot", f"must be 0 to {SLOTS_PER_DEVICE - 1}: a device has {SLOTS_PER_DEVICE} slots.")


def _prepare_for_save(schedule: Schedule, before: Schedule | None, now_ts: int, recurrence: RecurrenceCalculator) -> Schedule:
    """The schedule to store: with its first edge, and a higher revision if its times or commands changed.

    `before`: the schedule that the slot held, this one or the one it replaces. Raises ValidationFailed when no edge is left.
    """
    same = before is not None and before.schedule_id == schedule.schedule_id
    if before is not None and same and _behavior_key(before) == _behavior_key(schedule):
        return schedule
    done_ts = 0 if before is None or before.last_fired_ms is None else before.last_fired_ms // 1000
    first = initial_edge(schedule, now_ts, done_ts, recurrence)
    if first is None:
        details = [FieldError(field, "is in the past.") for field in ("onTs", "offTs")]
        raise ValidationFailed("Both times of the slot are in the past. Set at least one in the future.", details=details)
    running = same and schedule.status is ScheduleStatus.ACTIVE and first.edge is SwitchEdge.OFF
    return replace(
        schedule,
        status=ScheduleStatus.ACTIVE if running else ScheduleStatus.PENDING,
        revision=schedule.revision + 1 if same else 1,
        next_fire_ts=first.ts if schedule.enabled else None,
        next_edge=first.edge if schedule.enabled else None,
    )


def _behavior_key(schedule: Schedule) -> tuple[object, ...]:
    return (
        schedule.on_ts,
        schedule.off_ts,
        schedule.enabled,
        schedule.on_command,
        schedule.off_command,
        schedule.rrule,
        schedule.timezone,
    )
