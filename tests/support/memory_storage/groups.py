"""Groups of devices. A device's row has the ids of its groups, as the database adds them when it reads one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from domain.devices.lookup import name_taken_error
from domain.devices.model import Device, DeviceGroup
from domain.kernel.ids import AccountId, DeviceId, GroupId, ProjectId
from support.memory_storage.grants import delete_grants
from support.memory_storage.tables import Database, Table

GROUPS: Table[GroupId, DeviceGroup] = Table("device_groups")
MEMBERS: Table[tuple[GroupId, DeviceId], str] = Table("group_members")
_DEVICES: Table[DeviceId, Device] = Table("devices")


class MemoryDeviceGroupRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, group: DeviceGroup) -> None:
        self._check_name(group)
        self._database.writable_rows(GROUPS)[group.group_id] = group

    async def get(self, account_id: AccountId, group_id: GroupId) -> DeviceGroup | None:
        group = self._database.rows(GROUPS).get(group_id)
        return group if group is not None and group.account_id == account_id else None

    async def get_for_update(self, account_id: AccountId, group_id: GroupId) -> DeviceGroup | None:
        return await self.get(account_id, group_id)

    async def list(self, account_id: AccountId, project_id: ProjectId | None = None) -> Sequence[DeviceGroup]:
        every = self._database.rows(GROUPS).values()
        return [each for each in every if each.account_id == account_id and project_id in (None, each.project_id)]

    async def save(self, group: DeviceGroup) -> None:
        self._check_name(group)
        self._database.writable_rows(GROUPS)[group.group_id] = group

    async def delete(self, group_id: GroupId) -> None:
        await self.remove_devices(group_id, [device for group, device in self._database.rows(MEMBERS) if group == group_id])
        delete_grants(self._database, lambda grant: grant.group_id == group_id)
        self._database.delete(GROUPS, [group_id])

    async def add_devices(self, group_id: GroupId, device_ids: Collection[DeviceId], added_by: str, at_ms: int) -> None:
        for device_id in device_ids:
            self._database.writable_rows(MEMBERS).setdefault((group_id, device_id), added_by)
            self._write_groups(device_id)

    async def remove_devices(self, group_id: GroupId, device_ids: Collection[DeviceId]) -> None:
        for device_id in device_ids:
            self._database.delete(MEMBERS, [(group_id, device_id)])
            self._write_groups(device_id)

    async def remove_from_all(self, device_id: DeviceId) -> None:
        for group_id in await self.list_adders(device_id):
            await self.remove_devices(group_id, [device_id])

    async def list_device_ids(self, group_ids: Collection[GroupId]) -> Sequence[tuple[GroupId, DeviceId]]:
        return sorted(key for key in self._database.rows(MEMBERS) if key[0] in group_ids)

    async def list_adders(self, device_id: DeviceId) -> Mapping[GroupId, str]:
        return {group: by for (group, device), by in self._database.rows(MEMBERS).items() if device == device_id}

    def _write_groups(self, device_id: DeviceId) -> None:
        rows = self._database.writable_rows(_DEVICES)
        if device_id not in rows:
            return
        groups = sorted(group for group, device in self._database.rows(MEMBERS) if device == device_id)
        rows[device_id] = replace(rows[device_id], group_ids=tuple(groups))

    def _check_name(self, group: DeviceGroup) -> None:
        for other in self._database.rows(GROUPS).values():
            same = (other.project_id, other.name) == (group.project_id, group.name)
            if same and other.group_id != group.group_id:
                raise name_taken_error(group)


def leave_groups(database: Database, device_id: DeviceId) -> None:
    database.delete(MEMBERS, [key for key in database.rows(MEMBERS) if key[1] == device_id])
