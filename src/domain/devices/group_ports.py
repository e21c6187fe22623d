"""Groups of devices: named sets within one project. A device can be a member of many; grants on a group cover its members."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from domain.devices.group import DeviceGroup
from domain.kernel.errors import NotFound
from domain.kernel.ids import AccountId, DeviceId, GroupId, ProjectId

MAX_GROUP_DEVICES = 200
"""What is done to a group is done in one transaction, which must stay short."""


class DeviceGroupRepository(Protocol):
    async def add(self, group: DeviceGroup) -> None:
        """Raises Conflict `GROUP_EXISTS`."""

    async def get(self, account_id: AccountId, group_id: GroupId) -> DeviceGroup | None: ...

    async def get_for_update(self, account_id: AccountId, group_id: GroupId) -> DeviceGroup | None:
        """Lock the row until the writing transaction ends. Read a group this way before you change it or its members."""

    async def list(self, account_id: AccountId, project_id: ProjectId | None = None) -> Sequence[DeviceGroup]:
        """Oldest first."""

    async def save(self, group: DeviceGroup) -> None:
        """Raises Conflict `GROUP_EXISTS`."""

    async def delete(self, group_id: GroupId) -> None:
        """Also deletes the grants on it."""

    async def add_devices(self, group_id: GroupId, device_ids: Collection[DeviceId], added_by: str, at_ms: int) -> None:
        """`added_by`: the label of the caller. Devices that are members already keep theirs."""

    async def remove_devices(self, group_id: GroupId, device_ids: Collection[DeviceId]) -> None:
        """Waits for every transaction that uses a grant on the group for one of these devices."""

    async def remove_from_all(self, device_id: DeviceId) -> None:
        """`remove_devices` of every group that the device is a member of."""

    async def list_device_ids(self, group_ids: Collection[GroupId]) -> Sequence[tuple[GroupId, DeviceId]]:
        """The members, in order of the ids."""

    async def list_adders(self, device_id: DeviceId) -> Mapping[GroupId, str]:
        """The groups of the device, each with the label of who added the device to it."""


class HasDeviceGroups(Protocol):
    @property
    def groups(self) -> DeviceGroupRepository: ...


async def get_group(tx: HasDeviceGroups, account_id: AccountId, group_id: GroupId, *, for_update: bool = False) -> DeviceGroup:
    """Raises NotFound, also for a group of another account."""
    find = tx.groups.get_for_update if for_update else tx.groups.get
    group = await find(account_id, group_id)
    if group is None:
        raise NotFound.for_resource("group", group_id)
    return group
