"""A slot that the firmware holds runs there without asking. When the member who saved it loses the permission for its commands,
or they need approval now, the slot is paused in the same transaction, and the device gets a plan without it.

Other slots need nothing here: the service asks for the permission each time they are due.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from domain.commands.authority import OUTSIDE_WINDOW, REVIEWED, QueuedCommandAuthority
from domain.commands.model import Execution, ExecutionStatus, TriggeredBy
from domain.devices.model import Device
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent
from domain.kernel.ids import DeviceId, ExecutionId
from domain.schedules.device_plan import DevicePlanSyncService, fits_firmware
from domain.schedules.model import Schedule
from domain.schedules.ports import SchedulesTx

KEPT = (OUTSIDE_WINDOW, "UNKNOWN_COMMAND", "DEVICE_DELETED")
"""What does not pause a slot: the window is that of the moment, and the others leave nothing to run."""


@service
class PlannedSlotAuthority:
    """Implements `FollowUpPort`."""

    authority: QueuedCommandAuthority
    plans: DevicePlanSyncService

    async def follow(self, tx: SchedulesTx, events: Sequence[DomainEvent]) -> Sequence[DomainEvent]:
        """Pause what these events take the authority from. Returns the events of that."""
        reviewed = {event.account_id: event for event in events if event.kind in REVIEWED}
        return [paused for event in reviewed.values() for paused in await self._review_account(tx, event)]

    async def _review_account(self, tx: SchedulesTx, event: DomainEvent) -> list[DomainEvent]:
        active = [each for each in await tx.schedules.list_active_by_account(event.account_id) if each.enabled]
        found = await tx.devices.list_by_ids({each.device_id for each in active}) if active else ()
        devices = {device.device_id: device for device in found}
        held = [each for each in active if each.device_id in devices and fits_firmware(devices[each.device_id].profile, each)]
        probes = [probe for each in held if each.created_by is not None for probe in _probes(each)]
        codes = await self.authority.find_unauthorized(tx, probes, event.at_ms) if probes else {}
        lost = {key.partition(" ")[0]: code for key, code in codes.items() if code not in KEPT}
        return await self._pause(tx, event, [each for each in held if each.schedule_id in lost], devices, lost)

    async def _pause(
        self,
        tx: SchedulesTx,
        event: DomainEvent,
        schedules: Iterable[Schedule],
        devices: dict[DeviceId, Device],
        codes: dict[str, str],
    ) -> list[DomainEvent]:
        chosen = list(schedules)
        changing = [devices[device_id] for device_id in dict.fromkeys(each.device_id for each in chosen)]
        rows = await self.plans.plan_rows_by_device(tx, changing)
        paused = []
        for each in chosen:
            current = await tx.schedules.get_by_slot(each.device_id, each.slot)
            if current is None or current.schedule_id != each.schedule_id or current.updated_ms != each.updated_ms:
                continue  # saved again meanwhile, with the permissions of now
            await tx.schedules.save(replace(current, enabled=False, next_fire_ts=None, next_edge=None, updated_ms=event.at_ms))
            paused.append(_paused_event(event, each, devices[each.device_id], codes[each.schedule_id]))
        await self.plans.revise_many_if_changed(tx, changing, rows)
        return paused


def _probes(schedule: Schedule) -> Sequence[Execution]:
    """What the slot would run, as if it were queued now."""
    return [
        Execution(
            execution_id=ExecutionId(f"{schedule.schedule_id} {command}"),
            seq=0,
            account_id=schedule.account_id,
            device_id=schedule.device_id,
            device_no=schedule.device_no,
            cmd=command,
            params=None,
            status=ExecutionStatus.QUEUED,
            source=TriggeredBy.SCHEDULE,
            requested_by="",
            grant_id=None,
            created_ms=0,
            expires_ms=0,
            membership_id=schedule.created_by,
        )
        for command in (schedule.on_command.command, schedule.off_command.command)
    ]


def _paused_event(event: DomainEvent, schedule: Schedule, device: Device, code: str) -> DomainEvent:
    return DomainEvent(
        account_id=event.account_id,
        kind="schedule_updated",
        description=f"Slot {schedule.slot} was paused, because who saved it may not run it any more ({code})",
        at_ms=event.at_ms,
        source=event.source,
        device_id=device.device_id,
        data={"scheduleId": schedule.schedule_id, "slot": schedule.slot, "enabled": False, "reason": code},
        address=event.address,
        device_name=device.name,
    )
