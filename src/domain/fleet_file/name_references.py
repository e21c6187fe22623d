"""The names by which a file refers to objects, and the ids behind them, as of the transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from domain.devices.model import Device, DeviceGroup, DeviceStatus
from domain.fleet_file.ports import FleetFileTx
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import AccountId, DeviceId, DeviceTypeId, GroupId, IdPrefix, KeyId, MembershipId, ProjectId, has_id_format

Id = TypeVar("Id", bound=str)


class FleetNameIndex:
    def __init__(self, account_id: AccountId) -> None:
        self.account_id = account_id
        self.default_project = ""
        """The name of the project of what names none."""
        self.projects: dict[ProjectId, str] = {}
        self.device_types: dict[DeviceTypeId, str] = {}
        self.keys: dict[KeyId, str] = {}
        self.members: dict[MembershipId, str] = {}
        self.groups: dict[GroupId, DeviceGroup] = {}
        self._devices: dict[str, Device] = {}

    async def load(self, tx: FleetFileTx, project: str | None) -> None:
        """Raises ValidationFailed when there is no project of the name `project`."""
        for each, _ in await tx.projects.list_with_device_counts(self.account_id):
            self.projects[each.project_id] = each.name
        self.device_types = {each.device_type_id: each.name for each in await tx.device_types.list(self.account_id)}
        self.keys = {each.key_id: each.name for each in await tx.api_keys.list_by_account(self.account_id)}
        for member in await tx.memberships.list_members(self.account_id):
            self.members[member.membership.membership_id] = member.user.email
        self.groups = {each.group_id: each for each in await tx.groups.list(self.account_id)}
        default = (await tx.projects.get_default(self.account_id)).project_id
        self.default_project = self.projects[default if project is None else self.project_id(project)]

    async def load_devices(self, tx: FleetFileTx, references: Iterable[str]) -> None:
        """Before `device`: one query for many."""
        wanted = set(references) - self._devices.keys()
        ids = {DeviceId(each) for each in wanted if has_id_format(IdPrefix.DEVICE, each)}
        for device in await tx.devices.list_by_ids(ids) if ids else ():
            self.add_device(device)
        others = wanted - self._devices.keys()
        for device in await tx.devices.list_by_external_ids(self.account_id, others) if others else ():
            self.add_device(device)

    def add_device(self, device: Device) -> None:
        if device.account_id == self.account_id and device.status is not DeviceStatus.DELETING:
            self._devices[device.device_id] = device
            if device.external_id is not None:
                self._devices.setdefault(device.external_id, device)

    def device(self, field: str, reference: str) -> Device:
        """By its `externalId` or `deviceId`, after `load_devices`. Raises ValidationFailed."""
        found = self._devices.get(reference)
        if found is None:
            raise ValidationFailed.for_field(
                field, f"there is no device {reference!r}. Add it to `devices`, or correct the name."
            )
        return found

    def device_name(self, device_id: DeviceId) -> str | None:
        """How a file refers to it; None for one that is not loaded or does not exist."""
        found = self._devices.get(device_id)
        return None if found is None else found.external_id or found.device_id

    def project_id(self, name: str) -> ProjectId:
        return _id_of("project", "projects", name, self.projects)

    def device_type_id(self, name: str) -> DeviceTypeId:
        return _id_of("deviceType", "deviceTypes", name, self.device_types)

    def key_id(self, name: str) -> KeyId:
        return _id_of("apiKey", "apiKeys", name, self.keys)

    def membership_id(self, email: str) -> MembershipId:
        return _id_of("member", "the members of the account", email, self.members)

    def group(self, project: str, name: str) -> DeviceGroup:
        project_id = self.project_id(project)
        for group in self.groups.values():
            if group.project_id == project_id and group.name == name:
                return group
        raise ValidationFailed.for_field("group", f"there is no group {name!r} in project {project!r}. Add it to `groups`.")


def _id_of(field: str, section: str, name: str, names: Mapping[Id, str]) -> Id:
    found = [each for each, known in names.items() if known == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValidationFailed.for_field(
            field, f"{len(found)} have the name {name!r}. Rename them so that the file can tell them apart."
        )
    raise ValidationFailed.for_field(field, f"there is no {name!r} in {section}. Add it, or correct the name.")
