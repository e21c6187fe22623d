"""Devices of a fleet file. What belongs to one device is in `device_part_reconcilers.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar

from domain.devices.model import Device, DeviceMetadata, DeviceStatus
from domain.devices.registration import DeviceRegistrationInput
from domain.fleet_file.model import CreatedFleetObject, DesiredFleetObject, Fields, FleetKind, StoredFleetObject
from domain.fleet_file.reconciler import FleetFileKindReconciler, FleetFileReadContext, FleetFileWriteContext, defaults_of
from domain.kernel.caller import Role
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import DeviceId

_METADATA_FIELDS = tuple(one.name for one in fields(DeviceMetadata))
_OWN_FIELDS = ("name", "board_type", "app_type", "app_type_other", "profile", "external_id")


class FleetFileDeviceReconciler(FleetFileKindReconciler):
    kind = FleetKind.DEVICES
    tag = "Devices"
    writer = Role.MEMBER
    defaults: ClassVar[Fields] = {
        "app_type_other": None,
        "device_type": None,
        "external_id": None,
        "device_id": None,
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
            by_id = {each.device_id: each for each in await run.tx.devices.list_by_external_ids(account_id, names)}
            found = [*by_id.values(), *(each for each in await run.tx.devices.list_by_ids(ids) if each.device_id not in by_id)]
        return [_stored_device(run, each) for each in found if _is_present(run, each)]

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
        device = await run.writers.devices.register(run.caller, registration)
        run.names.add_device(device)
        return CreatedFleetObject(device.device_id)

    async def change(self, run: FleetFileWriteContext, stored: StoredFleetObject, changes: Mapping[str, Any]) -> None:
        named = dict(changes)
        if "project" in named:
            named["project_id"] = run.names.project_id(named.pop("project"))
        if "device_type" in named:
            name = named.pop("device_type")
            named["device_type_id"] = None if name is None else run.names.device_type_id(name)
        run.names.add_device(await run.writers.devices.update(run.caller, DeviceId(stored.id), named))

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
    by_id = ("deviceId", device.device_id)
    keys = (by_id,) if device.external_id is None else (("externalId", device.external_id), by_id)
    return StoredFleetObject(device.device_id, keys, found, device)
