"""Devices of a fleet file, and what belongs to one device: its commands, schedules and rules. Beside a device's fields, an apply
makes metrics known and issues credentials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar

from domain.commands.definitions import EDITABLE_FIELDS, CommandDefinitionInput
from domain.devices.channels import ChannelInput
from domain.devices.lookup import get_device
from domain.devices.model import Device, DeviceMetadata, DeviceStatus
from domain.devices.registration import BulkCredentials, DeviceRegistrationInput
from domain.fleet_file.model import (
    CreatedFleetObject,
    DesiredFleetObject,
    Fields,
    FleetAction,
    FleetKind,
    FleetObjectOutcome,
    PlannedFieldChange,
    StoredFleetObject,
    with_place,
)
from domain.fleet_file.reconciler import FleetFileReadContext, FleetFileWriteContext, KindReconciler, defaults_of
from domain.kernel.caller import Role
from domain.kernel.dataclasses import service
from domain.kernel.errors import DomainError, ValidationFailed
from domain.kernel.ids import CommandId, DeviceId, RuleId
from domain.kernel.unit_of_work import give_way, in_steps
from domain.rules.model import Rule
from domain.rules.service import declare_metrics
from domain.schedules.model import Schedule, ScheduleStatus
from domain.schedules.service import HISTORY_LIMIT, ScheduleInput

PAGE_DEVICES = 100

_METADATA_FIELDS = tuple(one.name for one in fields(DeviceMetadata))
_OWN_FIELDS = ("name", "board_type", "app_type", "app_type_other", "profile", "external_id")
_RULE_FIELDS = (
    *("name", "conditions", "action", "enabled", "priority", "match", "for_seconds", "cooldown_seconds", "clear_conditions"),
)
_SCHEDULE_FIELDS = tuple(one.name for one in fields(ScheduleInput))


class DeviceReconciler(KindReconciler):
    kind = FleetKind.DEVICES
    tag = "Devices"
    writer = Role.MEMBER
    defaults: ClassVar[Fields] = {
        "app_type_other": None,
        "device_type": None,
        "external_id": None,
        "device_id": None,
        "channels": (),
        **defaults_of(DeviceMetadata),
    }

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        account_id = run.caller.account_id
        if wanted is None:
            project_id = None if run.project is None else run.names.project_id(run.project)
            found = await run.tx.devices.list(account_id, project_id)
        else:
            ids = [DeviceId(str(each.key[1])) for each in wanted if each.key[0] == "deviceId"]
            names = [str(each.key[1]) for each in wanted if each.key[0] == "externalId"]
            by_id: dict[DeviceId, Device] = {}
            for some in in_steps(names, PAGE_DEVICES):
                by_id |= {each.device_id: each for each in await run.tx.devices.list_by_external_ids(account_id, some)}
            for few in in_steps(ids, PAGE_DEVICES):
                by_id |= {each.device_id: each for each in await run.tx.devices.list_by_ids(few) if each.device_id not in by_id}
            found = [*by_id.values()]
        stored: list[StoredFleetObject] = []
        for step in in_steps(found):
            stored += [_stored_device(run, each) for each in step if _is_present(run, each)]
            await give_way()
        return stored

    async def resolve(self, run: FleetFileReadContext, wanted: DesiredFleetObject) -> DesiredFleetObject:
        if "project" in wanted.given:
            run.names.project_id(wanted.fields["project"])
        return wanted

    async def create(self, run: FleetFileWriteContext, wanted: DesiredFleetObject) -> CreatedFleetObject:
        if wanted.key[0] == "deviceId":
            message = f"there is no device {wanted.key[1]!r}. For a new device give an externalId of your own instead."
            raise ValidationFailed.for_field("deviceId", message)
        given = wanted.fields
        registration = DeviceRegistrationInput(
            **{name: given[name] for name in _OWN_FIELDS},
            project_id=run.names.project_id(given["project"] or run.names.default_project),
            device_type_id=None if given["device_type"] is None else run.names.device_type_id(given["device_type"]),
            about=DeviceMetadata(**{name: given[name] for name in _METADATA_FIELDS}),
        )
        count = await run.names.count_new_device(run.tx)
        device = await run.writers.devices.register(run.caller, registration, count=count)
        if given["channels"]:
            device = await run.writers.devices.update(run.caller, device.device_id, {"channels": given["channels"]})
        run.names.add_device(device)
        return CreatedFleetObject(device.device_id)

    async def change(self, run: FleetFileWriteContext, stored: StoredFleetObject, changes: Mapping[str, Any]) -> None:
        named = dict(changes)
        if "project" in named:
            named["project_id"] = run.names.project_id(named.pop("project"))
        if "device_type" in named:
            name = named.pop("device_type")
            named["device_type_id"] = None if name is None else run.names.device_type_id(name)
        run.names.add_device(await run.writers.devices.update(run.caller, DeviceId(stored.id), named, known=stored.source))

    async def delete(self, run: FleetFileWriteContext, stored: StoredFleetObject) -> None:
        await run.writers.devices.delete(run.caller, DeviceId(stored.id))


def _is_present(run: FleetFileReadContext, device: Device) -> bool:
    return device.status is not DeviceStatus.DELETING and device.account_id == run.caller.account_id


def _stored_device(run: FleetFileReadContext, device: Device) -> StoredFleetObject:
    run.names.add_device(device)
    found: dict[str, Any] = {"external_id": device.external_id}
    if device.external_id is None:
        found["device_id"] = device.device_id
    found |= {name: getattr(device, name) for name in _OWN_FIELDS}
    found["project"] = run.names.projects.get(device.project_id)
    found["device_type"] = None if device.device_type_id is None else run.names.device_types.get(device.device_type_id)
    found |= {name: getattr(device.about, name) for name in _METADATA_FIELDS}
    found["channels"] = tuple(
        ChannelInput(each.channel, each.kind, each.given_name)
        for each in device.channels
        if each.given_name is not None or not each.is_declared
    )
    by_id = ("deviceId", device.device_id)
    keys = (by_id,) if device.external_id is None else (("externalId", device.external_id), by_id)
    return StoredFleetObject(device.device_id, keys, found, device)


@service
class DevicePartReconciler(KindReconciler):
    writer = Role.MEMBER

    device_id: DeviceId


class CommandReconciler(DevicePartReconciler):
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


class ScheduleReconciler(DevicePartReconciler):
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


class RuleReconciler(DevicePartReconciler):
    kind = FleetKind.RULES
    tag = "Rules"
    may_repeat = True
    defaults: ClassVar[Fields] = defaults_of(Rule)

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        found = sorted(await run.tx.rules.list_by_device(self.device_id), key=lambda rule: rule.rule_no)
        return [
            StoredFleetObject(rule.rule_id, ((rule.name,),), {name: getattr(rule, name) for name in _RULE_FIELDS}, rule)
            for rule in found
        ]

    async def create(self, run: FleetFileWriteContext, wanted: DesiredFleetObject) -> CreatedFleetObject:
        return CreatedFleetObject((await run.writers.rules.create(run.caller, self.device_id, wanted.fields)).rule_id)

    async def change(self, run: FleetFileWriteContext, stored: StoredFleetObject, changes: Mapping[str, Any]) -> None:
        await run.writers.rules.update(run.caller, self.device_id, RuleId(stored.id), changes)

    async def delete(self, run: FleetFileWriteContext, stored: StoredFleetObject) -> None:
        await run.writers.rules.delete(run.caller, self.device_id, RuleId(stored.id))


PARTS: Mapping[FleetKind, type[DevicePartReconciler]] = {
    reconciler.kind: reconciler for reconciler in (CommandReconciler, ScheduleReconciler, RuleReconciler)
}


async def known_metrics(run: FleetFileReadContext, device: Device) -> tuple[str, ...]:
    """By name."""
    return tuple(name for _, name, _ in await run.tx.readings.list_device_metrics(device.device_no))


async def with_metrics(run: FleetFileWriteContext, wanted: DesiredFleetObject, outcome: FleetObjectOutcome) -> FleetObjectOutcome:
    """Make the metrics known that the file names: rules may name them before the device has reported them. None is forgotten."""
    names = wanted.fields["metrics"]
    if not names:
        return outcome
    device = await get_device(run.tx, run.caller.account_id, DeviceId(outcome.id))
    if set(names) <= set(await known_metrics(run, device)):
        return outcome
    run.check_may_differ()
    try:
        DeviceReconciler.check_writable(run.caller)
        before, after = await declare_metrics(run.tx, run.caller, device, names, run.now_ms)
    except DomainError as error:
        raise with_place(error, outcome.path) from None
    return _changed(outcome, PlannedFieldChange("metrics", before, after))


async def with_credentials(run: FleetFileWriteContext, outcome: FleetObjectOutcome) -> FleetObjectOutcome:
    """New ones, if the request asks for them and the device has none that are used."""
    if run.credentials is BulkCredentials.NONE:
        return outcome
    device = await get_device(run.tx, run.caller.account_id, DeviceId(outcome.id))
    is_new = device.status is DeviceStatus.PENDING
    if not run.credentials.are_due(device):
        return outcome
    run.check_may_differ()
    try:
        DeviceReconciler.check_writable(run.caller)
        issued = await run.writers.issuer.issue(run.tx, run.caller, device, run.now_ms, rotated=not is_new)
    except DomainError as error:
        raise with_place(error, outcome.path) from None
    run.postponed.synced.append(device.device_id)
    return replace(_changed(outcome, PlannedFieldChange("credentials", None if is_new else "unused", "new")), credentials=issued)


def _changed(outcome: FleetObjectOutcome, change: PlannedFieldChange) -> FleetObjectOutcome:
    action = FleetAction.CHANGE if outcome.action is FleetAction.NONE else outcome.action
    return replace(outcome, action=action, changes=(*outcome.changes, change))
