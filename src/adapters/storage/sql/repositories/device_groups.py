"""Groups of devices and their members."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import bindparam, delete, select

from adapters.storage.sql.entity_repository import AccountEntityStatements, SqlAccountEntityRepository
from adapters.storage.sql.row_mapper import RowMapper, to_json
from adapters.storage.sql.statement_builders import insert_or_ignore, listed
from adapters.storage.sql.tables import device_groups, grants, group_members
from domain.devices.model import DeviceGroup
from domain.kernel.errors import Conflict
from domain.kernel.ids import AccountId, DeviceId, GroupId, ProjectId

GROUP = RowMapper(device_groups, DeviceGroup)

g, m = device_groups.c, group_members.c
GROUPS = AccountEntityStatements(GROUP, "group_id", exists_error=lambda group: name_taken_error(group))
LIST_BY_PROJECT = GROUPS.list.where(g.project_id == bindparam("at_project"))
DELETE_GRANTS = delete(grants).where(grants.c.group_id == bindparam("at_group"))

ADD_MEMBER = insert_or_ignore(group_members)
_OF_GROUP = m.group_id == bindparam("at_group")
REMOVE_MEMBERS = delete(group_members).where(_OF_GROUP, m.device_id.in_(listed()))
REMOVE_FROM_ALL = delete(group_members).where(m.device_id == bindparam("at_device"))
LIST_MEMBERS = select(m.group_id, m.device_id).where(m.group_id.in_(listed())).order_by(m.group_id, m.device_id)
LIST_ADDERS = select(m.group_id, m.added_by).where(m.device_id == bindparam("at_device"))


class SqlDeviceGroupRepository(SqlAccountEntityRepository[DeviceGroup]):
    statements = GROUPS

    async def list(self, account_id: AccountId, project_id: ProjectId | None = None) -> Sequence[DeviceGroup]:
        if project_id is None:
            return await self.list_by_account(account_id)
        return await self._list(GROUP, LIST_BY_PROJECT, at_account=account_id, at_project=project_id)

    async def delete(self, entity_id: str) -> None:
        """No foreign key deletes the grants: SQLite cannot add one to a table that exists."""
        await self._session.write(DELETE_GRANTS, at_group=entity_id)
        await super().delete(entity_id)

    async def add_devices(self, group_id: GroupId, device_ids: Collection[DeviceId], added_by: str, at_ms: int) -> None:
        for device_id in sorted(device_ids):
            row = {"group_id": group_id, "device_id": device_id, "added_by": added_by, "added_ms": at_ms}
            await self._session.write(ADD_MEMBER, **row)

    async def remove_devices(self, group_id: GroupId, device_ids: Collection[DeviceId]) -> None:
        await self._session.write(REMOVE_MEMBERS, at_group=group_id, at_listed=to_json(sorted(device_ids)))

    async def remove_from_all(self, device_id: DeviceId) -> None:
        await self._session.write(REMOVE_FROM_ALL, at_device=device_id)

    async def list_device_ids(self, group_ids: Collection[GroupId]) -> Sequence[tuple[GroupId, DeviceId]]:
        if not group_ids:
            return []
        rows = await self._session.read(LIST_MEMBERS, at_listed=to_json(sorted(group_ids)))
        return [(row[0], row[1]) for row in rows]

    async def list_adders(self, device_id: DeviceId) -> Mapping[GroupId, str]:
        return {row[0]: row[1] for row in await self._session.read(LIST_ADDERS, at_device=device_id)}


def name_taken_error(group: DeviceGroup) -> Conflict:
    return Conflict(f"The project has a group {group.name!r} already. Choose another name.", code="GROUP_EXISTS")
