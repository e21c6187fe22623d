"""Grants, and the uses that count against their rate limits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, and_, bindparam, insert, or_, select

from adapters.storage.sql.mapping import (
    JSON_TUPLE,
    SHORT_TUPLE,
    EmbeddedDataclassColumns,
    EntityStatements,
    RowMapper,
    SqlStoredEntityRepository,
    enum_converter,
    from_json,
    to_json,
)
from adapters.storage.sql.session import LOOK_UP
from adapters.storage.sql.statements import delete_batch, for_update, listed
from adapters.storage.sql.tables import devices, grant_uses, grants, group_members
from domain.devices.model import Device
from domain.grants.model import ApiKeyReadAccess, Grant, GrantSubject, Scope, WeeklyGrantWindow
from domain.kernel.ids import AccountId, DeviceId, GrantId, GroupId, KeyId

g = grants.c
u = grant_uses.c

GRANT = RowMapper(
    grants,
    Grant,
    {
        "commands": JSON_TUPLE,
        "scope": enum_converter(Scope),
        "active_days": (lambda days: to_json(sorted(days)), lambda text: frozenset(from_json(text))),
        "changed_by": SHORT_TUPLE,
        "channels": SHORT_TUPLE,
    },
    always=("changed_by", "channels"),
    nested={"subject": EmbeddedDataclassColumns(GrantSubject), "window": EmbeddedDataclassColumns(WeeklyGrantWindow)},
    cached=1_024,
)
GRANTS = EntityStatements(GRANT, "grant_id")
_SELECT = GRANT.select()

m = group_members.c
ON_PROJECT: ColumnElement[bool] = and_(g.device_id.is_(None), g.group_id.is_(None))


def _group_has_member(members: ColumnElement[bool]) -> ColumnElement[bool]:
    return g.group_id.in_(select(m.group_id).where(members))


_ACCOUNT = g.account_id == bindparam("at_account")
_KEY = g.key_id == bindparam("at_subject")
_MEMBERSHIP = g.membership_id == bindparam("at_subject")


def _applying(statement: Select[Any], device: Any, project: Any, member: Any) -> Select[Any]:
    """Grants on the devices that the conditions name, on their projects and on their groups."""
    return statement.where(or_(device, and_(project, ON_PROJECT), _group_has_member(member))).order_by(g.seq)


def _applying_to_device(statement: Select[Any]) -> Select[Any]:
    device = bindparam("at_device", type_=Text())
    return _applying(statement, g.device_id == device, g.project_id == bindparam("at_project"), m.device_id == device)


def _applying_to_devices(statement: Select[Any]) -> Select[Any]:
    project = g.project_id.in_(listed("at_projects"))
    return _applying(statement, g.device_id.in_(listed()), project, m.device_id.in_(listed()))


GET_FOR_UPDATE = for_update(GRANTS.get[False].where(_ACCOUNT))
LIST_BY_GROUP = _SELECT.where(g.group_id == bindparam("at_group")).order_by(g.seq)
LIST_BY_DEVICE = _applying_to_device(_SELECT)
LIST_BY_KEY_AND_DEVICE = _applying_to_device(_SELECT.where(_KEY)).execution_options(**LOOK_UP)
LIST_BY_MEMBERSHIP_AND_DEVICE = _applying_to_device(_SELECT.where(_MEMBERSHIP)).execution_options(**LOOK_UP)
LIST_BY_KEY_AND_DEVICES = _applying_to_devices(_SELECT.where(_KEY))
LIST_BY_MEMBERSHIP_AND_DEVICES = _applying_to_devices(_SELECT.where(_MEMBERSHIP))
LIST_BY_KEY = _SELECT.where(_KEY, _ACCOUNT).order_by(g.seq)
LIST_BY_MEMBERSHIP = _SELECT.where(_MEMBERSHIP, _ACCOUNT).order_by(g.seq)
_REACH = select(g.key_id, g.device_id, g.project_id, g.expires_ms, g.group_id)
REACH_BY_KEYS = _REACH.where(g.key_id.in_(listed()))
REACH_BY_DEVICES = _REACH.where(
    g.key_id.is_not(None),
    or_(
        g.device_id.in_(listed()),
        and_(ON_PROJECT, g.project_id.in_(select(devices.c.project_id).where(devices.c.device_id.in_(listed())))),
        _group_has_member(m.device_id.in_(listed())),
    ),
)

LOCK_GRANT = _SELECT.where(GRANTS.is_id).with_for_update(key_share=True)
LOCK_GRANT_FOR_SHARE = _SELECT.where(GRANTS.is_id).with_for_update(read=True)
LOCK_MEMBER_FOR_SHARE = (
    select(m.group_id)
    .where(m.group_id == bindparam("at_group"), m.device_id == bindparam("at_device"))
    .with_for_update(read=True)
)
LIST_RECENT_USES = (
    select(u.at_ms)
    .where(u.grant_id == bindparam("at_id"), u.at_ms > bindparam("at_since"), u.at_ms <= bindparam("at_until"))
    .order_by(u.at_ms.desc())
    .limit(bindparam("at_limit"))
)
ADD_USE = insert(grant_uses)
DELETE_OLD_USES = delete_batch(grant_uses, u.at_ms < bindparam("at_before"), u.at_ms)


class SqlGrantRepository(SqlStoredEntityRepository[Grant]):
    statements = GRANTS

    async def get_for_update(self, account_id: AccountId, grant_id: GrantId) -> Grant | None:
        return await self._first(GRANT, GET_FOR_UPDATE[self._session.writable], at_id=grant_id, at_account=account_id)

    async def list_by_device(self, device: Device) -> Sequence[Grant]:
        return await self._list(GRANT, LIST_BY_DEVICE, at_device=device.device_id, at_project=device.project_id)

    async def list_by_group(self, group_id: GroupId) -> Sequence[Grant]:
        return await self._list(GRANT, LIST_BY_GROUP, at_group=group_id)

    async def list_by_subject_and_device(self, subject: GrantSubject, device: Device) -> Sequence[Grant]:
        statement = LIST_BY_KEY_AND_DEVICE if subject.key_id is not None else LIST_BY_MEMBERSHIP_AND_DEVICE
        place = {"at_device": device.device_id, "at_project": device.project_id}
        return await self._list(GRANT, statement, at_subject=subject.key_id or subject.membership_id, **place)

    async def list_by_subject_and_devices(self, subject: GrantSubject, devices: Sequence[Device]) -> Sequence[Grant]:
        return await self._list(
            GRANT,
            LIST_BY_KEY_AND_DEVICES if subject.key_id is not None else LIST_BY_MEMBERSHIP_AND_DEVICES,
            at_subject=subject.key_id or subject.membership_id,
            at_listed=to_json(sorted({device.device_id for device in devices})),
            at_projects=to_json(sorted({device.project_id for device in devices})),
        )

    async def list_by_key(self, account_id: AccountId, key_id: KeyId) -> Sequence[Grant]:
        return await self.list_by_subject(account_id, GrantSubject(key_id=key_id))

    async def list_by_subject(self, account_id: AccountId, subject: GrantSubject) -> Sequence[Grant]:
        statement = LIST_BY_KEY if subject.key_id is not None else LIST_BY_MEMBERSHIP
        return await self._list(GRANT, statement, at_subject=subject.key_id or subject.membership_id, at_account=account_id)

    async def list_read_access_by_keys(self, key_ids: Sequence[KeyId]) -> Sequence[ApiKeyReadAccess]:
        return await self._list_read_access(REACH_BY_KEYS, key_ids)

    async def list_read_access_by_devices(self, device_ids: Collection[DeviceId]) -> Sequence[ApiKeyReadAccess]:
        return await self._list_read_access(REACH_BY_DEVICES, device_ids)

    async def _list_read_access(self, statement: Select[Any], among: Collection[str]) -> Sequence[ApiKeyReadAccess]:
        if not among:
            return []
        rows = await self._session.read(statement, at_listed=to_json(sorted(set(among))))
        return [ApiKeyReadAccess(*row) for row in rows]

    async def lock_for_share(self, grant: Grant) -> bool:
        return await self._lock_unchanged(LOCK_GRANT_FOR_SHARE, grant)

    async def lock_membership(self, grant: Grant, device_id: DeviceId) -> bool:
        if grant.group_id is None or not self._takes_locks:
            return True
        return bool(await self._session.write(LOCK_MEMBER_FOR_SHARE, at_group=grant.group_id, at_device=device_id))

    async def _lock_unchanged(self, lock: Select[Any], grant: Grant) -> bool:
        """SQLite has one writer, so the grant cannot change meanwhile."""
        if not self._takes_locks:
            return True
        rows = await self._session.write(lock, at_id=grant.grant_id)
        return bool(rows) and GRANT.from_row(rows[0]) == grant

    async def list_recent_uses(self, grant: Grant, since_ms: int, until_ms: int, limit: int) -> Sequence[int] | None:
        if not await self._lock_unchanged(LOCK_GRANT, grant):
            return None
        rows = await self._session.read(
            LIST_RECENT_USES, at_id=grant.grant_id, at_since=since_ms, at_until=until_ms, at_limit=limit
        )
        return [row[0] for row in rows]

    async def add_use(self, grant_id: GrantId, at_ms: int) -> None:
        await self._session.execute_many(ADD_USE, [{"grant_id": grant_id, "at_ms": at_ms}], defer=True)

    async def delete_uses_older_than(self, at_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_OLD_USES, at_before=at_ms, at_limit=limit)
