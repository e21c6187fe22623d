"""Use cases of devices: register, look at, edit, switch on and off, delete. Credentials are in `credentials.py`.

A change that shuts a device out is committed, then told to the link, then answered: when the answer is there, the device is out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from domain.accounts.model import Project
from domain.devices.admission import Admission
from domain.devices.catalog import profile_for
from domain.devices.erasure import Erasure
from domain.devices.lookup import device_of
from domain.devices.model import About, Device, DeviceStatus, Profile, Trigger
from domain.devices.ports import DevicesTx
from domain.devices.presence import PresenceService
from domain.kernel.caller import Role, Session, require_role
from domain.kernel.clock import Clock
from domain.kernel.errors import Conflict, Invalid, NotFound, Stale
from domain.kernel.facts import EventKind, Fact, Json
from domain.kernel.ids import DeviceId, DeviceTypeId, IdSource, Prefix, ProjectId
from domain.kernel.unit_of_work import UnitOfWork

MAX_DEVICES_PER_ACCOUNT = 100_000
_ABOUT = frozenset(one.name for one in fields(About))
_OWN = frozenset(
    {"name", "board_type", "app_type", "app_type_other", "project_id", "device_type_id", "profile"}
)


@dataclass(frozen=True, slots=True)
class Registration:
    name: str
    board_type: str
    app_type: str
    app_type_other: str | None = None
    project_id: ProjectId | None = None
    device_type_id: DeviceTypeId | None = None
    profile: Profile | None = None
    about: About = field(default_factory=About)


@dataclass(frozen=True, slots=True)
class Registered:
    """A device with its project, as a detail page shows it."""

    device: Device
    project: Project


class DeviceService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[DevicesTx],
        clock: Clock,
        ids: IdSource,
        admission: Admission,
        presence: PresenceService,
        erasure: Erasure,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._admission = admission
        self._presence = presence
        self._erasure = erasure

    async def register(self, caller: Session, wanted: Registration) -> Device:
        """Raises Refused, NotFound for an unknown project or device type, Conflict `TOO_MANY_DEVICES`."""
        require_role(caller, Role.MEMBER)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            if await tx.devices.count(caller.account_id) >= MAX_DEVICES_PER_ACCOUNT:
                raise Conflict("This account has as many devices as it may have. Delete one first.", code="TOO_MANY_DEVICES")
            await _check_references(tx, caller, wanted.project_id, wanted.device_type_id)
            project_id = wanted.project_id or (await tx.projects.default(caller.account_id)).project_id
            device = await tx.devices.add(self._new(caller, wanted, project_id, now_ms))
            await tx.record(_fact(device, caller, "device_registered", f"Device registered: {device.name}", now_ms))
        return device

    async def get(self, caller: Session, device_id: DeviceId) -> Registered:
        async with self._uow.read() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            project = await tx.projects.get(caller.account_id, device.project_id)
        if project is None:
            raise NotFound.of("project", device.project_id)
        return Registered(device, project)

    async def update(
        self, caller: Session, device_id: DeviceId, changes: Mapping[str, Any], *, version: int | None = None
    ) -> Device:
        """`changes`: fields of Device that people decide, and of About, by name. `version`: what the caller has seen.

        Raises Stale when the stored version is another, NotFound, Refused, Invalid."""
        require_role(caller, Role.MEMBER)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            before = await device_of(tx, caller.account_id, device_id)
            if version is not None and version != before.version:
                raise Stale("The device has changed since you read it. Read it again, then repeat your change.")
            if not changes:
                return before
            await _check_references(tx, caller, changes.get("project_id"), changes.get("device_type_id"))
            type_id = before.device_type_id
            if type_id is not None and changes.get("device_type_id", type_id) != type_id:
                require_role(caller, Role.ADMIN)  # the type's commands may ask for approvals, and they would go with it
            if changes.get("project_id", before.project_id) != before.project_id:
                require_role(caller, Role.ADMIN)  # project grants follow the device: a move gives and takes permissions
            after = _edited(before, changes)
            after = await store(tx, after)
            changed: list[Json] = [str(name) for name in sorted(changes)]
            fact = _fact(after, caller, "device_updated", f"Device updated: {', '.join(sorted(changes))}", now_ms)
            await tx.record(replace(fact, data={"fields": changed}))
        if after.profile is not before.profile:
            await self._admission.settle(device_id)
        return after

    async def toggle(self, caller: Session, device_id: DeviceId) -> Device:
        """ACTIVE ↔ DISABLED. Raises Conflict `DEVICE_STATE` for a device that is neither."""
        require_role(caller, Role.MEMBER)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            trigger = Trigger.ENABLE if device.status is DeviceStatus.DISABLED else Trigger.DISABLE
            device = await store(tx, device.after(trigger))
            kind: EventKind = "device_enabled" if device.enabled else "device_disabled"
            text = "Device enabled" if device.enabled else "Device disabled"
            await tx.record(_fact(device, caller, kind, text, now_ms))
            if not device.enabled:
                await self._presence.gone(tx, device, now_ms)
        await self._admission.settle(device_id)
        return device

    async def delete(self, caller: Session, device_id: DeviceId) -> None:
        """When this returns the device is gone for everybody; its readings are on their way out (`erasure.py`)."""
        require_role(caller, Role.MEMBER)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            device = await store(tx, device.after(Trigger.DELETE))
            await tx.credentials.delete(device_id)
            await self._presence.gone(tx, device, now_ms)
            await tx.record(_fact(device, caller, "device_deleted", f"Device deleted: {device.name}", now_ms))
        await self._admission.settle(device_id)
        await self._erasure.erase(device)

    def _new(self, caller: Session, wanted: Registration, project_id: ProjectId, now_ms: int) -> Device:
        return Device(
            device_id=DeviceId(self._ids.new(Prefix.DEVICE)),
            device_no=0,
            account_id=caller.account_id,
            project_id=project_id,
            name=wanted.name,
            board_type=wanted.board_type,
            app_type=wanted.app_type,
            app_type_other=wanted.app_type_other,
            status=DeviceStatus.PENDING,
            profile=wanted.profile or profile_for(wanted.board_type, wanted.app_type),
            device_type_id=wanted.device_type_id,
            about=wanted.about,
            created_ms=now_ms,
        )


async def store(tx: DevicesTx, device: Device) -> Device:
    """The device as stored. Raises Conflict when somebody else changed it in between."""
    if not await tx.devices.save(device):
        raise Conflict("The device was changed by somebody else just now. Read it again, then repeat your change.")
    return replace(device, version=device.version + 1)


async def _check_references(
    tx: DevicesTx, caller: Session, project_id: ProjectId | None, device_type_id: DeviceTypeId | None
) -> None:
    if project_id is not None and await tx.projects.get(caller.account_id, project_id) is None:
        raise NotFound.of("project", project_id)
    if device_type_id is not None and await tx.device_types.get(caller.account_id, device_type_id) is None:
        raise NotFound.of("device type", device_type_id)


def _edited(device: Device, changes: Mapping[str, Any]) -> Device:
    unknown = changes.keys() - _ABOUT - _OWN
    if unknown:
        raise Invalid.field(min(unknown), "cannot be changed.")
    about = replace(device.about, **{name: value for name, value in changes.items() if name in _ABOUT})
    return replace(device, about=about, **{name: value for name, value in changes.items() if name in _OWN})


def _fact(device: Device, caller: Session, kind: EventKind, description: str, now_ms: int) -> Fact:
    return Fact(
        account_id=device.account_id,
        kind=kind,
        description=description,
        at_ms=now_ms,
        source=caller.label,
        device_id=device.device_id,
        address=caller.address,
    )
