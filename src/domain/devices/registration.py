"""How a device comes to be: the checks and the new row, shared by all ways to register one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from domain.accounts.ports import HasProjects
from domain.devices.board_and_application_catalog import infer_profile
from domain.devices.model import Device, DeviceMetadata, DeviceStatus, FirmwareProfile
from domain.devices.ports import HasDevices, HasDeviceTypes
from domain.kernel.caller import Caller
from domain.kernel.domain_event import DomainEvent
from domain.kernel.errors import Conflict, NotFound
from domain.kernel.ids import AccountId, DeviceId, DeviceTypeId, ProjectId
from domain.kernel.unit_of_work import Transaction

MAX_DEVICES_PER_ACCOUNT = 100_000


class DeviceRegistrationTx(Transaction, HasDevices, HasDeviceTypes, HasProjects, Protocol): ...


@dataclass(frozen=True, slots=True)
class DeviceRegistrationInput:
    name: str
    board_type: str
    app_type: str
    app_type_other: str | None = None
    project_id: ProjectId | None = None
    device_type_id: DeviceTypeId | None = None
    profile: FirmwareProfile | None = None
    about: DeviceMetadata = field(default_factory=DeviceMetadata)
    external_id: str | None = None


def check_device_capacity(count: int) -> None:
    """Raises Conflict `TOO_MANY_DEVICES` when an account with `count` devices can have no more."""
    if count >= MAX_DEVICES_PER_ACCOUNT:
        raise Conflict("This account has reached the maximum number of devices. Delete one first.", code="TOO_MANY_DEVICES")


async def check_references(
    tx: DeviceRegistrationTx, account_id: AccountId, project_id: ProjectId | None, device_type_id: DeviceTypeId | None
) -> None:
    """Raises NotFound for a project or device type that the account does not have."""
    if project_id is not None and await tx.projects.get(account_id, project_id) is None:
        raise NotFound.for_resource("project", project_id)
    if device_type_id is not None and await tx.device_types.get(account_id, device_type_id) is None:
        raise NotFound.for_resource("device type", device_type_id)


async def add_device(
    tx: DeviceRegistrationTx, caller: Caller, device_id: DeviceId, registration: DeviceRegistrationInput, now_ms: int
) -> Device:
    """A PENDING device. Its references are checked before. Raises Conflict `EXTERNAL_ID_TAKEN`."""
    project_id = registration.project_id or (await tx.projects.get_default(caller.account_id)).project_id
    device = await tx.devices.add(
        Device(
            device_id=device_id,
            device_no=0,
            account_id=caller.account_id,
            project_id=project_id,
            name=registration.name,
            board_type=registration.board_type,
            app_type=registration.app_type,
            app_type_other=registration.app_type_other,
            status=DeviceStatus.PENDING,
            profile=registration.profile or infer_profile(registration.board_type, registration.app_type),
            device_type_id=registration.device_type_id,
            about=registration.about,
            created_ms=now_ms,
            external_id=registration.external_id,
        )
    )
    text = f"Device registered: {device.name}"
    await tx.emit(
        DomainEvent.from_caller(caller, "device_registered", text, now_ms, device_id=device.device_id, device_name=device.name)
    )
    return device
