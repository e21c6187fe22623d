"""A slot that the firmware holds runs there without asking. So the device holds a slot only while the member who saved it may
run both commands when they are due, by the grants of now: a grant that expires before, a window that is closed then, or an
approval that is needed now keeps the slot from it.

What changes this emits an event, and in its transaction the slot is withdrawn: the device gets a plan in which it is paused. The
slot itself stays as it is. The service decides each of its edges when it is due, and tells why one did not run. When the
permission is back, the device gets the slot again.
"""

from __future__ import annotations

from collections.abc import Sequence

from domain.commands.authority import REVIEWED, QueuedCommandAuthority
from domain.commands.model import Execution, ExecutionStatus, TriggeredBy
from domain.devices.model import Device
from domain.kernel.clock import SECOND_MS
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, EventKind, Json
from domain.kernel.ids import DeviceId, ExecutionId
from domain.schedules.device_plan import DevicePlanSyncService, fits_firmware
from domain.schedules.model import Schedule
from domain.schedules.ports import SchedulesTx

_ACCOUNT_REVIEWED: frozenset[EventKind] = REVIEWED | {"grant_created"}
_SAVED: frozenset[EventKind] = frozenset({"schedule_created", "schedule_replaced", "schedule_updated"})
_NOTHING_TO_RUN = ("UNKNOWN_COMMAND", "DEVICE_DELETED")
_LEFT = "MEMBER_REMOVED"


@service
class PlannedSlotAuthority:
    """Implements `FollowUpPort`."""

    authority: QueuedCommandAuthority
    plans: DevicePlanSyncService

    async def follow(self, tx: SchedulesTx, events: Sequence[DomainEvent]) -> Sequence[DomainEvent]:
        """Withdraw slots that lost the permission in these events, and give back those that have it again. Returns the events of
        that."""
        reviewed = {event.account_id: event for event in events if event.kind in _ACCOUNT_REVIEWED}
        changes: list[DomainEvent] = []
        for event in reviewed.values():
            changes += await self._review(tx, event, await tx.schedules.list_active_by_account(event.account_id))
        saved = {
            event.device_id: event
            for event in events
            if event.kind in _SAVED and event.device_id is not None and event.account_id not in reviewed
        }
        for device_id, event in saved.items():
            changes += await self._review(tx, event, await tx.schedules.list_active(device_id))
        return changes

    async def _review(self, tx: SchedulesTx, event: DomainEvent, active: Sequence[Schedule]) -> list[DomainEvent]:
        found = await tx.devices.list_by_ids({each.device_id for each in active}) if active else ()
        devices = {device.device_id: device for device in found}
        held = [each for each in active if each.device_id in devices and fits_firmware(devices[each.device_id], each)]
        codes = await self._find_lost(tx, held, event.at_ms)
        changed = [each for each in held if each.withdrawn is not (each.schedule_id in codes)]
        if not changed:
            return []
        changing: list[Device] = [devices[device_id] for device_id in _device_ids(changed)]
        rows = await self.plans.plan_rows_by_device(tx, changing)
        for withdrawn in (True, False):
            chosen = [each.schedule_id for each in changed if each.withdrawn is not withdrawn]
            if chosen:
                await tx.schedules.set_withdrawn(chosen, withdrawn)
        await self.plans.revise_many_if_changed(tx, changing, rows)
        return [_changed_event(event, each, devices[each.device_id], codes.get(each.schedule_id)) for each in changed]

    async def _find_lost(self, tx: SchedulesTx, held: Sequence[Schedule], now_ms: int) -> dict[str, str]:
        """By schedule, the code of what its coming edges lack."""
        lost: dict[str, str] = {each.schedule_id: _LEFT for each in held if each.created_by is None}
        probes = [probe for each in held if each.created_by is not None for probe in _probes(each, now_ms)]
        run_ms = {probe.execution_id: probe.created_ms for probe in probes}
        codes = await self.authority.find_unauthorized(tx, probes, now_ms, run_ms=run_ms) if probes else {}
        return lost | {key.partition(" ")[0]: code for key, code in codes.items() if code not in _NOTHING_TO_RUN}


def _device_ids(schedules: Sequence[Schedule]) -> Sequence[DeviceId]:
    return list(dict.fromkeys(each.device_id for each in schedules))


def _probes(schedule: Schedule, now_ms: int) -> Sequence[Execution]:
    """What the slot would still run, as if it were queued when it is due."""
    edges = (schedule.on_ts, schedule.on_command), (schedule.off_ts, schedule.off_command)
    return [
        Execution(
            execution_id=ExecutionId(f"{schedule.schedule_id} {command.command}"),
            seq=0,
            account_id=schedule.account_id,
            device_id=schedule.device_id,
            device_no=schedule.device_no,
            cmd=command.command,
            channel=command.channel,
            params=None,
            status=ExecutionStatus.QUEUED,
            source=TriggeredBy.SCHEDULE,
            requested_by="",
            grant_id=None,
            created_ms=due_ts * SECOND_MS,
            expires_ms=0,
            membership_id=schedule.created_by,
        )
        for due_ts, command in edges
        if due_ts * SECOND_MS >= now_ms
    ]


def _changed_event(event: DomainEvent, schedule: Schedule, device: Device, code: str | None) -> DomainEvent:
    text = f"Slot {schedule.slot} is on the device again: who saved it may run it"
    if code is not None:
        text = f"Slot {schedule.slot} was withdrawn from the device, because who saved it may not run it when it is due ({code})"
    data: dict[str, Json] = {"scheduleId": schedule.schedule_id, "slot": schedule.slot, "withdrawn": code is not None}
    return DomainEvent(
        account_id=event.account_id,
        kind="schedule_updated",
        description=text,
        at_ms=event.at_ms,
        source=event.source,
        device_id=device.device_id,
        data=data if code is None else data | {"reason": code},
        address=event.address,
        device_name=device.name,
    )
