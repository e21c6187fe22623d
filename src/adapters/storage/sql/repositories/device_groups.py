"""Groups of devices and their members."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Delete, Select, bindparam, delete, insert, select, update

from adapters.storage.sql.db_session import DbSession, UniqueViolationError
from adapters.storage.sql.row_mapper import RowMapper, for_update, insert_or_ignore, json_list, to_json
from adapters.storage.sql.tables import device_groups, grants, group_members
from domain.devices.groups import DeviceGroup
from domain.kernel.errors import Conflict
from domain.kernel.ids import AccountId, DeviceId, GroupId, ProjectId

GROUP = RowMapper(device_groups, DeviceGroup)

g, m = device_groups.c, group_members.c
_ID = g.group_id == bindparam("at_id")

ADD = insert(device_groups)
GET = for_update(GROUP.select().where(_ID, g.account_id == bindparam("at_account")))
LIST = GROUP.select().where(g.account_id == bindparam("at_account")).order_by(g.seq)
LIST_BY_PROJECT = LIST.where(g.project_id == bindparam("at_project"))
SAVE = update(device_groups).where(_ID)
DELETE = delete(device_groups).where(_ID)

DELETE_GRANTS = delete(grants).where(grants.c.group_id == bindparam("at_group"))

ADD_MEMBER = insert_or_ignore(group_members)
_OF_GROUP = m.group_id == bindparam("at_group")
REMOVE_MEMBERS: dict[str, Delete] = {
    dialect: delete(group_members).where(_OF_GROUP, m.device_id.in_(among)) for dialect, among in json_list().items()
}
REMOVE_FROM_ALL = delete(group_members).where(m.device_id == bindparam("at_device"))
LIST_MEMBERS: dict[str, Select[Any]] = {
    dialect: select(m.group_id, m.device_id).where(m.group_id.in_(among)).order_by(m.group_id, m.device_id)
    for dialect, among in json_list().items()
}
LIST_ADDERS = select(m.group_id, m.added_by).where(m.device_id == bindparam("at_device"))


class SqlDeviceGroupRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, group: DeviceGroup) -> None:
        try:
            await self._session.write(ADD, **GROUP.values(group))
        except UniqueViolationError:
            raise name_taken_error(group) from None

    async def get(self, account_id: AccountId, group_id: GroupId) -> DeviceGroup | None:
        return GROUP.first_or_none(await self._session.read(GET[False], at_id=group_id, at_account=account_id))

    async def get_for_update(self, account_id: AccountId, group_id: GroupId) -> DeviceGroup | None:
        statement = GET[self._session.writable]
        return GROUP.first_or_none(await self._session.read(statement, at_id=group_id, at_account=account_id))

    async def list(self, account_id: AccountId, project_id: ProjectId | None = None) -> Sequence[DeviceGroup]:
        if project_id is None:
            rows = await self._session.read(LIST, at_account=account_id)
        else:
            rows = await self._session.read(LIST_BY_PROJECT, at_account=account_id, at_project=project_id)
        return [GROUP.from_row(row) for row in rows]

    async def save(self, group: DeviceGroup) -> None:
        try:
            await self._session.write(SAVE, at_id=group.group_id, **GROUP.values(group, "group_id"))
        except UniqueViolationError:
            raise name_taken_error(group) from None

    async def delete(self, group_id: GroupId) -> None:
        """No foreign key deletes the grants: SQLite cannot add one to a table that exists."""
        await self._session.write(DELETE_GRANTS, at_group=group_id)
        await self._session.write(DELETE, at_id=group_id)

    async def add_devices(self, group_id: GroupId, device_ids: Collection[DeviceId], added_by: str, at_ms: int) -> None:
        for device_id in sorted(device_ids):
            row = {"group_id": group_id, "device_id": device_id, "added_by": added_by, "added_ms": at_ms}
            await self._session.write(ADD_MEMBER[self._session.dialect], **row)

    async def remove_devices(self, group_id: GroupId, device_ids: Collection[DeviceId]) -> None:
        statement = REMOVE_MEMBERS[self._session.dialect]
        await self._session.write(statement, at_group=group_id, at_listed=to_json(sorted(device_ids)))

    async def remove_from_all(self, device_id: DeviceId) -> None:
        await self._session.write(REMOVE_FROM_ALL, at_device=device_id)

    async def list_device_ids(self, group_ids: Collection[GroupId]) -> Sequence[tuple[GroupId, DeviceId]]:
        if not group_ids:
            return []
        rows = await self._session.read(LIST_MEMBERS[self._session.dialect], at_listed=to_json(sorted(group_ids)))
        return [(row[0], row[1]) for row in rows]

    async def list_adders(self, device_id: DeviceId) -> Mapping[GroupId, str]:
        return {row[0]: row[1] for row in await self._session.read(LIST_ADDERS, at_device=device_id)}


def name_taken_error(group: DeviceGroup) -> Conflict:
    return Conflict(f"The project has a group {group.name!r} already. Choose another name.", code="GROUP_EXISTS")
