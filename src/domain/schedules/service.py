"""Use cases of slots: put, edit, cancel, look.

Putting a slot replaces what it held: the old schedule is cancelled and stays in the history, the new one begins with revision 1.
Editing keeps the schedule and counts its revision up. Both are one transaction with the firmware's plan and the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from domain.commands.model import Definition
from domain.devices.lookup import device_of
from domain.devices.model import Device
from domain.kernel.caller import Role, Session, require_role
from domain.kernel.clock import Clock
from domain.kernel.errors import FieldFault, Invalid, NotFound
from domain.kernel.facts import EventKind, Fact, Json
from domain.kernel.ids import DeviceId, IdSource, Prefix, ScheduleId
from domain.kernel.unit_of_work import UnitOfWork
from domain.schedules import policy
from domain.schedules.firmware import in_step
from domain.schedules.model import (
    DEFAULT_GRACE_S,
    PLAIN_OFF,
    PLAIN_ON,
    Misfire,
    Schedule,
    ScheduleStatus,
    SlotCommand,
)
from domain.schedules.plans import PlanService
from domain.schedules.ports import Recurrence, SchedulesTx

HISTORY = 100
RECENT = 20
"""How far back to look for what a slot held last."""


class UnattendedCheck(Protocol):
    """What the commands part decides about a command that will run with nobody present."""

    async def check_unattended(
        self, tx: SchedulesTx, caller: Session, device: Device, cmd: str, params: Json, now_ms: int
    ) -> Definition: ...

    async def definitions(self, tx: SchedulesTx, device: Device) -> Sequence[Definition]: ...


@dataclass(frozen=True, slots=True)
class Shown:
    """A schedule, and whether the device itself holds it as it is."""

    schedule: Schedule
    firmware_synced: bool


@dataclass(frozen=True, slots=True)
class Terms:
    """A slot as asked for."""

    on_ts: int
    off_ts: int
    label: str = ""
    enabled: bool = True
    on_command: SlotCommand = PLAIN_ON
    off_command: SlotCommand = PLAIN_OFF
    rrule: str | None = None
    timezone: str = "UTC"
    misfire: Misfire = Misfire.FIRE
    misfire_grace_s: int = DEFAULT_GRACE_S


class ScheduleService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[SchedulesTx],
        clock: Clock,
        ids: IdSource,
        recurrence: Recurrence,
        commands: UnattendedCheck,
        plans: PlanService,
        schedule_bell: Callable[[], None],
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._recurrence = recurrence
        self._commands = commands
        self._plans = plans
        self._bell = schedule_bell

    async def list(self, caller: Session, device_id: DeviceId) -> Sequence[Shown]:
        async with self._uow.read() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            return [_shown(device, schedule) for schedule in await tx.schedules.active(device_id)]

    async def history(self, caller: Session, device_id: DeviceId) -> Sequence[Shown]:
        async with self._uow.read() as tx:
            await device_of(tx, caller.account_id, device_id)
            return [Shown(schedule, False) for schedule in await tx.schedules.history(device_id, HISTORY)]

    async def context(self, caller: Session, device_id: DeviceId) -> Sequence[Definition]:
        """The commands a slot of this device may run."""
        async with self._uow.read() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            definitions = await self._commands.definitions(tx, device)
        return [definition for definition in definitions if not definition.requires_approval]

    async def put(self, caller: Session, device_id: DeviceId, slot: int, terms: Terms) -> Shown:
        """Create or replace a slot. Raises Invalid, NotFound, Refused."""
        require_role(caller, Role.MEMBER)
        _check_slot(slot)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            return await self._put(tx, caller, device, slot, terms, now_ms)

    async def edit(
        self, caller: Session, device_id: DeviceId, slot: int, changes: Mapping[str, Any]
    ) -> Shown:
        """Change some fields (of `Terms`) of what the slot holds; an empty slot is filled when both times are given."""
        require_role(caller, Role.MEMBER)
        _check_slot(slot)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            before = await tx.schedules.in_slot(device_id, slot)
            if before is None:
                if not {"on_ts", "off_ts"} <= changes.keys():
                    raise NotFound(f"Slot {slot} of this device is empty. Give onTs and offTs to fill it.")
                return await self._put(tx, caller, device, slot, Terms(**changes), now_ms)
            rows = await self._plans.rows(tx, device)
            schedule = replace(before, **changes, created_by=caller.membership_id, updated_ms=now_ms)
            await self._check(tx, caller, device, schedule, now_ms)
            schedule = policy.saved(schedule, before, now_ms // 1000, self._recurrence)
            await tx.schedules.save(schedule)
            await self._changed(tx, caller, device, schedule, "schedule_updated", now_ms)
            return await self._planned(tx, device, schedule, rows)

    async def cancel(self, caller: Session, device_id: DeviceId, slot: int) -> None:
        """Raises NotFound for an empty slot."""
        require_role(caller, Role.MEMBER)
        _check_slot(slot)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            before = await tx.schedules.in_slot(device_id, slot)
            if before is None:
                raise NotFound(f"Slot {slot} of this device is empty already.")
            rows = await self._plans.rows(tx, device)
            cancelled = policy.cancelled(before, now_ms)
            await tx.schedules.save(cancelled)
            await self._changed(tx, caller, device, cancelled, "schedule_cancelled", now_ms)
            await self._plans.revise(tx, device, rows)

    async def _put(
        self, tx: SchedulesTx, caller: Session, device: Device, slot: int, terms: Terms, now_ms: int
    ) -> Shown:
        schedule = self._new(caller, device, slot, terms, now_ms)
        await self._check(tx, caller, device, schedule, now_ms)
        held = await tx.schedules.in_slot(device.device_id, slot)
        before = held or await _last_in(tx, device.device_id, slot)
        rows = await self._plans.rows(tx, device)
        schedule = policy.saved(schedule, before, now_ms // 1000, self._recurrence)
        if held is not None:
            await tx.schedules.save(policy.cancelled(held, now_ms))
        await tx.schedules.add(schedule)
        kind: EventKind = "schedule_created" if held is None else "schedule_replaced"
        await self._changed(tx, caller, device, schedule, kind, now_ms)
        return await self._planned(tx, device, schedule, rows)

    def _new(self, caller: Session, device: Device, slot: int, terms: Terms, now_ms: int) -> Schedule:
        return Schedule(
            schedule_id=ScheduleId(self._ids.new(Prefix.SCHEDULE)),
            account_id=device.account_id,
            device_id=device.device_id,
            device_no=device.device_no,
            slot=slot,
            on_ts=terms.on_ts,
            off_ts=terms.off_ts,
            label=terms.label,
            enabled=terms.enabled,
            status=ScheduleStatus.PENDING,
            on_command=terms.on_command,
            off_command=terms.off_command,
            rrule=terms.rrule,
            timezone=terms.timezone,
            misfire=terms.misfire,
            misfire_grace_s=terms.misfire_grace_s,
            revision=1,
            next_fire_ts=None,
            next_edge=None,
            last_fired_ms=None,
            last_outcome=None,
            created_by=caller.membership_id,
            created_ms=now_ms,
            updated_ms=now_ms,
        )

    async def _check(
        self, tx: SchedulesTx, caller: Session, device: Device, schedule: Schedule, now_ms: int
    ) -> None:
        policy.check(schedule, self._recurrence)
        for field, order in (("onCommand", schedule.on_command), ("offCommand", schedule.off_command)):
            try:
                await self._commands.check_unattended(tx, caller, device, order.command, order.params, now_ms)
            except Invalid as error:
                raise _about(field, error) from None

    async def _planned(
        self, tx: SchedulesTx, device: Device, schedule: Schedule, rows: tuple[tuple[int, int, int, bool], ...]
    ) -> Shown:
        if await self._plans.revise(tx, device, rows):
            return Shown(schedule, False)
        return _shown(device, schedule)

    async def _changed(
        self, tx: SchedulesTx, caller: Session, device: Device, schedule: Schedule, kind: EventKind, now_ms: int
    ) -> None:
        fact = Fact(
            account_id=device.account_id,
            kind=kind,
            description=f"Slot {schedule.slot}: {kind.replace('_', ' ')}",
            at_ms=now_ms,
            source=caller.label,
            device_id=device.device_id,
            data={
                "scheduleId": schedule.schedule_id,
                "slot": schedule.slot,
                "onTs": schedule.on_ts,
                "offTs": schedule.off_ts,
                "enabled": schedule.enabled,
            },
            address=caller.address,
        )
        await tx.record(fact)
        tx.after_commit(self._bell)


def _shown(device: Device, schedule: Schedule) -> Shown:
    return Shown(schedule, in_step(device, schedule))


def _check_slot(slot: int) -> None:
    faults = list(policy.slot_faults(slot))
    if faults:
        raise Invalid.field(faults[0].field, faults[0].message)


def _about(field: str, error: Invalid) -> Invalid:
    """The same refusal, its fields named as the slot names them."""
    details = [FieldFault(_renamed(field, fault.field), fault.message) for fault in error.details]
    named = details or [FieldFault(f"{field}.command", error.message)]
    return Invalid(f"{field}: {error.message}", code=error.code, details=named)


def _renamed(field: str, inner: str) -> str:
    return f"{field}.command" if inner == "cmd" else f"{field}.{inner}"


async def _last_in(tx: SchedulesTx, device_id: DeviceId, slot: int) -> Schedule | None:
    """The schedule that was last in an empty slot: what it has just run must not run again."""
    recent = await tx.schedules.history(device_id, RECENT)
    return next((schedule for schedule in recent if schedule.slot == slot), None)
