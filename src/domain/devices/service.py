"""Use cases of devices: register, read, edit, enable and disable, delete. Credentials have services of their own.

A change that disconnects a device is committed, then applied to the link, then answered: after the response the device is
disconnected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol

from domain.accounts.model import Project
from domain.devices.channels import check_channel_inputs, without_own_names
from domain.devices.lookup import get_device, get_device_to_cut_off, save_device
from domain.devices.model import UNKNOWN_HEALTH, Device, DeviceHealth, DeviceLifecycleAction, DeviceMetadata, DeviceStatus
from domain.devices.ports import DevicesTx
from domain.devices.presence import PresenceService
from domain.devices.registration import DeviceRegistrationInput, add_device, check_device_capacity, check_references
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, Json, event_of
from domain.kernel.errors import Conflict, NotFound, ValidationFailed
from domain.kernel.ids import DeviceId, IdAndSecretGenerator, IdPrefix
from domain.kernel.unit_of_work import UnitOfWork
from domain.team.service_sessions import check_operation

_METADATA_FIELDS = frozenset(one.name for one in fields(DeviceMetadata))
_EDITABLE_FIELDS = frozenset(
    {"name", "board_type", "app_type", "app_type_other", "project_id", "device_type_id", "profile", "external_id"}
)


class DeviceCredentialSyncPort(Protocol):
    """Brings the link in line with the stored device, after the commit (`credential_sync.py`)."""

    async def sync(self, device_id: DeviceId) -> bool: ...


class DeviceEraserPort(Protocol):
    """Deletes what belongs to a deleted device, after the commit (`erasure.py`)."""

    async def erase(self, device: Device) -> bool: ...


@dataclass(frozen=True, slots=True)
class DeviceDetails:
    """A device with its project and health, as the API shows it."""

    device: Device
    project: Project
    health: DeviceHealth


@service
class DeviceService:
    uow: UnitOfWork[DevicesTx]
    clock: Clock
    ids: IdAndSecretGenerator
    credential_sync: DeviceCredentialSyncPort
    presence: PresenceService
    erasure: DeviceEraserPort

    async def register(self, caller: SessionCaller, registration: DeviceRegistrationInput, *, count: int | None = None) -> Device:
        """`count`: the number of the account's devices, from a caller that registers many in one transaction. It has counted them
        there, and has looked up the project and the device type there.

        Raises PermissionDenied, NotFound for an unknown project or device type, Conflict `TOO_MANY_DEVICES` or
        `EXTERNAL_ID_TAKEN`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER) as tx:
            if count is None:
                count = await tx.devices.count(caller.account_id)
                await check_references(tx, caller.account_id, registration.project_id, registration.device_type_id)
            check_device_capacity(count)
            return await add_device(tx, caller, DeviceId(self.ids.new_id(IdPrefix.DEVICE)), registration, now_ms)

    async def get(self, caller: SessionCaller, device_id: DeviceId) -> DeviceDetails:
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
            project = await tx.projects.get(caller.account_id, device.project_id)
            health = await tx.device_health.list_by_numbers({device.device_no})
        if project is None:
            raise NotFound.for_resource("project", device.project_id)
        return DeviceDetails(device, project, health.get(device.device_no, UNKNOWN_HEALTH))

    async def update(
        self, caller: SessionCaller, device_id: DeviceId, changes: Mapping[str, Any], *, known: Device | None = None
    ) -> Device:
        """`changes`: editable fields of `Device` and `DeviceMetadata` by name; `channels`: of ChannelInput. `known`: the device,
        from a caller that changes many in one transaction and has read it there. Raises NotFound, PermissionDenied,
        ValidationFailed."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER) as tx:
            # A move waits for a group of the former project that the device is joining, and takes it out again.
            before = known
            if before is None or "project_id" in changes:
                before = await get_device(tx, caller.account_id, device_id, for_update="project_id" in changes)
            if not changes:
                return before
            channels = changes.get("channels")
            if channels is not None:
                check_channel_inputs(before.channels, channels)
                await tx.devices.describe_channels(device_id, without_own_names(before.channels, channels))
            await check_references(tx, caller.account_id, changes.get("project_id"), changes.get("device_type_id"))
            if any(
                changes.get(name, getattr(before, name)) != getattr(before, name) for name in ("project_id", "device_type_id")
            ):
                check_operation(caller, "grants", is_read=False)  # grants reach it by its place
            type_id = before.device_type_id
            if type_id is not None and changes.get("device_type_id", type_id) != type_id:
                await _check_can_leave(tx, caller, before, "type")
            if changes.get("project_id", before.project_id) != before.project_id:
                await _check_can_leave(tx, caller, before, "project")
                await tx.groups.remove_from_all(device_id)  # they are groups of the former project
            edited = {name: value for name, value in changes.items() if name != "channels"}
            after = await save_device(tx, _apply_changes(before, edited), deferred="external_id" not in changes)
            changed: list[Json] = [_api_name(name) for name in sorted(changes)]
            text = f"Device updated: {', '.join(map(str, changed))}"
            tx.emit(event_of(caller, "device_updated", text, now_ms, after, fields=changed))
        if after.profile is not before.profile:
            await self.credential_sync.sync(device_id)
        return after

    async def toggle_enabled(self, caller: SessionCaller, device_id: DeviceId) -> Device:
        """ACTIVE ↔ DISABLED. Raises Conflict `DEVICE_STATE` for a device that is neither."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER) as tx:
            device = await get_device_to_cut_off(tx, caller.account_id, device_id)
            trigger = DeviceLifecycleAction.ENABLE if device.status is DeviceStatus.DISABLED else DeviceLifecycleAction.DISABLE
            device = await save_device(tx, device.transition(trigger))
            kind: EventKind = "device_enabled" if device.is_active else "device_disabled"
            text = "Device enabled" if device.is_active else "Device disabled"
            tx.emit(event_of(caller, kind, text, now_ms, device))
            if not device.is_active:
                await self.presence.mark_revoked(tx, device, now_ms)
        await self.credential_sync.sync(device_id)
        return device

    async def delete(self, caller: SessionCaller, device_id: DeviceId) -> None:
        """When this returns, nobody can see the device any more; its readings are deleted in the background (`erasure.py`)."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER) as tx:
            device = await get_device_to_cut_off(tx, caller.account_id, device_id)
            device = await save_device(tx, replace(device.transition(DeviceLifecycleAction.DELETE), external_id=None))
            await tx.credentials.delete(device_id)
            await self.presence.mark_revoked(tx, device, now_ms)
            tx.emit(event_of(caller, "device_deleted", f"Device deleted: {device.name}", now_ms, device_id))
        await self.credential_sync.sync(device_id)
        await self.erasure.erase(device)


def _api_name(field: str) -> str:
    """The name of a field as the API writes it: `app_type` is `appType`."""
    return re.sub("_(.)", lambda match: match[1].upper(), field)


async def _check_can_leave(tx: DevicesTx, caller: SessionCaller, device: Device, place: Literal["type", "project"]) -> None:
    """Commands of the type may need approval, and grants on the project apply to the device: another type or project changes
    permissions. Raises PermissionDenied, Conflict `REQUEST_PENDING`."""
    require_role(caller, Role.ADMIN)
    if caller.role is not Role.OWNER and await tx.approvals.count_pending(device.account_id, device.device_id):
        raise Conflict(
            f"A request for this device waits for approval, and another {place} may permit more. Have the request decided first, "
            "or ask an Owner.",
            code="REQUEST_PENDING",
        )


def _apply_changes(device: Device, changes: Mapping[str, Any]) -> Device:
    unknown = changes.keys() - _METADATA_FIELDS - _EDITABLE_FIELDS
    if unknown:
        raise ValidationFailed.for_field(min(unknown), "cannot be changed.")
    about = replace(device.about, **{name: value for name, value in changes.items() if name in _METADATA_FIELDS})
    return replace(device, about=about, **{name: value for name, value in changes.items() if name in _EDITABLE_FIELDS})
