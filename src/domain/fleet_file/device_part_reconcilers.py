"""The commands, schedules and rules of one device in a fleet file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar

from domain.commands.definitions import EDITABLE_FIELDS, CommandDefinitionInput
from domain.fleet_file.model import CreatedFleetObject, DesiredFleetObject, Fields, FleetKind, StoredFleetObject
from domain.fleet_file.reconciler import FleetFileKindReconciler, FleetFileReadContext, FleetFileWriteContext, defaults_of
from domain.kernel.caller import Role
from domain.kernel.ids import CommandId, DeviceId, RuleId
from domain.rules.model import Rule
from domain.schedules.model import Schedule, ScheduleStatus
from domain.schedules.service import HISTORY_LIMIT, ScheduleInput

RULE_FIELDS = (
    *("name", "conditions", "action", "enabled", "priority", "match", "for_seconds", "cooldown_seconds", "clear_conditions"),
)
_SCHEDULE_FIELDS = tuple(one.name for one in fields(ScheduleInput))


class BaseFleetFileDevicePartReconciler(FleetFileKindReconciler):
    writer = Role.MEMBER

    def __init__(self, device_id: DeviceId, name: str) -> None:
        super().__init__(name)
        self.device_id = device_id


class FleetFileCommandReconciler(BaseFleetFileDevicePartReconciler):
    kind = FleetKind.COMMANDS
    tag = "Commands"
    defaults: ClassVar[Fields] = defaults_of(CommandDefinitionInput)

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        found = await run.tx.definitions.list_by_device(self.device_id)
        return [
            StoredFleetObject(
                str(each.command_id), ((each.name,),), {name: getattr(each, name) for name in EDITABLE_FIELDS}, each
            )
            for each in found
        ]

    async def create(self, run: FleetFileWriteContext, wanted: DesiredFleetObject) -> CreatedFleetObject:
        made = await run.writers.definitions.create(run.caller, self.device_id, CommandDefinitionInput(**wanted.fields))
        return CreatedFleetObject(str(made.command_id))

    async def change(self, run: FleetFileWriteContext, stored: StoredFleetObject, changes: Mapping[str, Any]) -> None:
        await run.writers.definitions.update(run.caller, self.device_id, CommandId(stored.id), changes)

    async def delete(self, run: FleetFileWriteContext, stored: StoredFleetObject) -> None:
        await run.writers.definitions.delete(run.caller, self.device_id, CommandId(stored.id))


class FleetFileScheduleReconciler(BaseFleetFileDevicePartReconciler):
    """A slot that has run to its end is still what the file wants: it is not made again."""

    kind = FleetKind.SCHEDULES
    tag = "Schedules"
    defaults: ClassVar[Fields] = defaults_of(ScheduleInput)

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        found = list(await run.tx.schedules.list_active(self.device_id))
        empty = {each.key[0] for each in wanted or ()} - {each.slot for each in found}
        if empty:
            for each in await run.tx.schedules.list_history(self.device_id, HISTORY_LIMIT):
                if each.slot in empty:
                    empty.discard(each.slot)
                    found += [each] if each.status is ScheduleStatus.COMPLETED else []
        return [_stored_schedule(each) for each in sorted(found, key=lambda one: one.slot)]

    async def create(self, run: FleetFileWriteContext, wanted: DesiredFleetObject) -> CreatedFleetObject:
        made = await run.writers.schedules.put(run.caller, self.device_id, wanted.fields["slot"], _slot_input(wanted.fields))
        return CreatedFleetObject(made.schedule.schedule_id)

    async def change(self, run: FleetFileWriteContext, stored: StoredFleetObject, changes: Mapping[str, Any]) -> None:
        slot = stored.source.slot
        if stored.source.status is ScheduleStatus.COMPLETED:
            await run.writers.schedules.put(run.caller, self.device_id, slot, _slot_input({**stored.fields, **changes}))
        else:
            await run.writers.schedules.update(run.caller, self.device_id, slot, changes)

    async def delete(self, run: FleetFileWriteContext, stored: StoredFleetObject) -> None:
        await run.writers.schedules.cancel(run.caller, self.device_id, stored.source.slot)


def _slot_input(given: Mapping[str, Any]) -> ScheduleInput:
    return ScheduleInput(**{name: given[name] for name in _SCHEDULE_FIELDS})


def _stored_schedule(schedule: Schedule) -> StoredFleetObject:
    found = {"slot": schedule.slot, **{name: getattr(schedule, name) for name in _SCHEDULE_FIELDS}}
    return StoredFleetObject(schedule.schedule_id, ((schedule.slot,),), found, schedule)


class FleetFileRuleReconciler(BaseFleetFileDevicePartReconciler):
    kind = FleetKind.RULES
    tag = "Rules"
    may_repeat = True
    defaults: ClassVar[Fields] = defaults_of(Rule)

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        found = sorted(await run.tx.rules.list_by_device(self.device_id), key=lambda rule: rule.rule_no)
        return [
            StoredFleetObject(rule.rule_id, ((rule.name,),), {name: getattr(rule, name) for name in RULE_FIELDS}, rule)
            for rule in found
        ]

    async def create(self, run: FleetFileWriteContext, wanted: DesiredFleetObject) -> CreatedFleetObject:
        return CreatedFleetObject((await run.writers.rules.create(run.caller, self.device_id, wanted.fields)).rule_id)

    async def change(self, run: FleetFileWriteContext, stored: StoredFleetObject, changes: Mapping[str, Any]) -> None:
        await run.writers.rules.update(run.caller, self.device_id, RuleId(stored.id), changes)

    async def delete(self, run: FleetFileWriteContext, stored: StoredFleetObject) -> None:
        await run.writers.rules.delete(run.caller, self.device_id, RuleId(stored.id))


PARTS: Mapping[FleetKind, type[BaseFleetFileDevicePartReconciler]] = {
    reconciler.kind: reconciler
    for reconciler in (FleetFileCommandReconciler, FleetFileScheduleReconciler, FleetFileRuleReconciler)
}
