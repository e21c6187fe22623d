"""Grants, and the uses that count against their rate limits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, delete, insert, or_, select, update

from adapters.storage.sql.db_session import LOOK_UP, POSTGRES, SQLITE, DbSession, Row
from adapters.storage.sql.row_mapper import delete_batch, for_update, from_json, json_list, to_json
from adapters.storage.sql.tables import devices, grant_uses, grants, group_members
from domain.devices.model import Device
from domain.grants.grant_window import GrantWindow
from domain.grants.model import ApiKeyReadAccess, Grant, GrantSubject, Scope
from domain.kernel.ids import AccountId, DeviceId, GrantId, GroupId, KeyId

g = grants.c
u = grant_uses.c

GRANT_COLUMNS = (
    g.grant_id,
    g.account_id,
    g.key_id,
    g.membership_id,
    g.device_id,
    g.project_id,
    g.commands,
    g.scope,
    g.expires_ms,
    g.active_days,
    g.from_minute,
    g.to_minute,
    g.timezone,
    g.rate_limit_per_minute,
    g.created_ms,
    g.created_by,
    g.changed_by,
    g.group_id,
)
_SELECT = select(*GRANT_COLUMNS)

m = group_members.c
ON_PROJECT: ColumnElement[bool] = and_(g.device_id.is_(None), g.group_id.is_(None))


def _on_group_of(members: ColumnElement[bool]) -> ColumnElement[bool]:
    return g.group_id.in_(select(m.group_id).where(members))


_ID = g.grant_id == bindparam("at_id")
_ACCOUNT = g.account_id == bindparam("at_account")
_KEY = g.key_id == bindparam("at_subject")
_MEMBERSHIP = g.membership_id == bindparam("at_subject")


def _applying_to_devices(statement: Select[Any], dialect: str) -> Select[Any]:
    """Grants on any of the devices, their projects or their groups."""
    here = g.device_id.in_(json_list()[dialect])
    around = and_(g.project_id.in_(json_list("at_projects")[dialect]), ON_PROJECT)
    return statement.where(or_(here, around, _on_group_of(m.device_id.in_(json_list()[dialect]))))


def _applying_to_device(statement: Select[Any]) -> Select[Any]:
    """Grants on the device, its project or its groups."""
    here = g.device_id == bindparam("at_device")
    around = and_(g.project_id == bindparam("at_project"), ON_PROJECT)
    return statement.where(or_(here, around, _on_group_of(m.device_id == bindparam("at_device"))))


ADD = insert(grants)
GET_FOR_UPDATE = for_update(_SELECT.where(_ID, _ACCOUNT))
SAVE = update(grants).where(_ID)
DELETE = delete(grants).where(_ID)
LIST_BY_GROUP = _SELECT.where(g.group_id == bindparam("at_group")).order_by(g.seq)
LIST_BY_DEVICE = _applying_to_device(_SELECT).order_by(g.seq)
LIST_BY_KEY_AND_DEVICE = _applying_to_device(_SELECT.where(_KEY)).order_by(g.seq).execution_options(**LOOK_UP)
LIST_BY_MEMBERSHIP_AND_DEVICE = _applying_to_device(_SELECT.where(_MEMBERSHIP)).order_by(g.seq).execution_options(**LOOK_UP)
LIST_BY_KEY_AND_DEVICES = {
    dialect: _applying_to_devices(_SELECT.where(_KEY), dialect).order_by(g.seq) for dialect in (SQLITE, POSTGRES)
}
LIST_BY_MEMBERSHIP_AND_DEVICES = {
    dialect: _applying_to_devices(_SELECT.where(_MEMBERSHIP), dialect).order_by(g.seq) for dialect in (SQLITE, POSTGRES)
}
LIST_BY_KEY = _SELECT.where(_KEY, _ACCOUNT).order_by(g.seq)
LIST_BY_MEMBERSHIP = _SELECT.where(_MEMBERSHIP, _ACCOUNT).order_by(g.seq)
_REACH = select(g.key_id, g.device_id, g.project_id, g.expires_ms, g.group_id)
REACH_BY_KEYS = {dialect: _REACH.where(g.key_id.in_(among)) for dialect, among in json_list().items()}
REACH_BY_DEVICES = {
    dialect: _REACH.where(
        g.key_id.is_not(None),
        or_(
            g.device_id.in_(among),
            and_(ON_PROJECT, g.project_id.in_(select(devices.c.project_id).where(devices.c.device_id.in_(among)))),
            _on_group_of(m.device_id.in_(among)),
        ),
    )
    for dialect, among in json_list().items()
}

LOCK_GRANT = _SELECT.where(_ID).with_for_update(key_share=True)
LOCK_GRANT_FOR_SHARE = _SELECT.where(_ID).with_for_update(read=True)
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


def grant_from_row(row: Row) -> Grant:
    (grant_id, account_id, key_id, membership_id, device_id, project_id, commands, scope, expires_ms) = row[:9]
    days, from_minute, to_minute, timezone, rate, created_ms, created_by, changed_by, group_id = row[9:]
    return Grant(
        grant_id=grant_id,
        account_id=account_id,
        subject=GrantSubject(key_id, membership_id),
        device_id=device_id,
        project_id=project_id,
        commands=tuple(from_json(commands)),
        scope=Scope(scope),
        expires_ms=expires_ms,
        window=GrantWindow(frozenset(from_json(days)), from_minute, to_minute, timezone),
        rate_limit_per_minute=rate,
        created_ms=created_ms,
        created_by=created_by,
        changed_by=tuple(from_json(changed_by)) if changed_by else (),
        group_id=group_id,
    )


def grant_values(grant: Grant) -> dict[str, Any]:
    """All columns except the id."""
    return {
        "account_id": grant.account_id,
        "key_id": grant.subject.key_id,
        "membership_id": grant.subject.membership_id,
        "device_id": grant.device_id,
        "project_id": grant.project_id,
        "commands": to_json(grant.commands),
        "scope": grant.scope.value,
        "expires_ms": grant.expires_ms,
        "active_days": to_json(sorted(grant.window.active_days)),
        "from_minute": grant.window.from_minute,
        "to_minute": grant.window.to_minute,
        "timezone": grant.window.timezone,
        "rate_limit_per_minute": grant.rate_limit_per_minute,
        "created_ms": grant.created_ms,
        "created_by": grant.created_by,
        "changed_by": to_json(grant.changed_by) if grant.changed_by else None,
        "group_id": grant.group_id,
    }


class SqlGrantRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, grant: Grant) -> None:
        await self._session.write(ADD, grant_id=grant.grant_id, **grant_values(grant))

    async def get_for_update(self, account_id: AccountId, grant_id: GrantId) -> Grant | None:
        rows = await self._session.read(GET_FOR_UPDATE[self._session.writable], at_id=grant_id, at_account=account_id)
        return grant_from_row(rows[0]) if rows else None

    async def save(self, grant: Grant) -> None:
        await self._session.write(SAVE, at_id=grant.grant_id, **grant_values(grant))

    async def delete(self, grant_id: GrantId) -> None:
        await self._session.write(DELETE, at_id=grant_id)

    async def list_by_device(self, device: Device) -> Sequence[Grant]:
        rows = await self._session.read(LIST_BY_DEVICE, at_device=device.device_id, at_project=device.project_id)
        return [grant_from_row(row) for row in rows]

    async def list_by_group(self, group_id: GroupId) -> Sequence[Grant]:
        return [grant_from_row(row) for row in await self._session.read(LIST_BY_GROUP, at_group=group_id)]

    async def list_by_subject_and_device(self, subject: GrantSubject, device: Device) -> Sequence[Grant]:
        statement = LIST_BY_KEY_AND_DEVICE if subject.key_id is not None else LIST_BY_MEMBERSHIP_AND_DEVICE
        rows = await self._session.read(
            statement,
            at_subject=subject.key_id or subject.membership_id,
            at_device=device.device_id,
            at_project=device.project_id,
        )
        return [grant_from_row(row) for row in rows]

    async def list_by_subject_and_devices(self, subject: GrantSubject, devices: Sequence[Device]) -> Sequence[Grant]:
        statements = LIST_BY_KEY_AND_DEVICES if subject.key_id is not None else LIST_BY_MEMBERSHIP_AND_DEVICES
        rows = await self._session.read(
            statements[self._session.dialect],
            at_subject=subject.key_id or subject.membership_id,
            at_listed=to_json(sorted({device.device_id for device in devices})),
            at_projects=to_json(sorted({device.project_id for device in devices})),
        )
        return [grant_from_row(row) for row in rows]

    async def list_by_key(self, account_id: AccountId, key_id: KeyId) -> Sequence[Grant]:
        return await self.list_by_subject(account_id, GrantSubject(key_id=key_id))

    async def list_by_subject(self, account_id: AccountId, subject: GrantSubject) -> Sequence[Grant]:
        statement = LIST_BY_KEY if subject.key_id is not None else LIST_BY_MEMBERSHIP
        subject_id = subject.key_id or subject.membership_id
        rows = await self._session.read(statement, at_subject=subject_id, at_account=account_id)
        return [grant_from_row(row) for row in rows]

    async def list_read_access_by_keys(self, key_ids: Sequence[KeyId]) -> Sequence[ApiKeyReadAccess]:
        return await self._list_reach(REACH_BY_KEYS, key_ids)

    async def list_read_access_by_devices(self, device_ids: Collection[DeviceId]) -> Sequence[ApiKeyReadAccess]:
        return await self._list_reach(REACH_BY_DEVICES, device_ids)

    async def _list_reach(self, statements: dict[str, Select[Any]], among: Collection[str]) -> Sequence[ApiKeyReadAccess]:
        if not among:
            return []
        rows = await self._session.read(statements[self._session.dialect], at_listed=to_json(sorted(set(among))))
        return [ApiKeyReadAccess(*row) for row in rows]

    async def lock_for_share(self, grant: Grant) -> bool:
        return await self._lock_unchanged(LOCK_GRANT_FOR_SHARE, grant)

    async def lock_membership(self, grant: Grant, device_id: DeviceId) -> bool:
        if grant.group_id is None or not self._session.writable or self._session.dialect != POSTGRES:
            return True
        return bool(await self._session.write(LOCK_MEMBER_FOR_SHARE, at_group=grant.group_id, at_device=device_id))

    async def _lock_unchanged(self, lock: Select[Any], grant: Grant) -> bool:
        """SQLite has one writer, so the grant cannot change meanwhile."""
        if not self._session.writable or self._session.dialect != POSTGRES:
            return True
        rows = await self._session.write(lock, at_id=grant.grant_id)
        return bool(rows) and grant_from_row(rows[0]) == grant

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
        return len(await self._session.write(DELETE_OLD_USES, at_before=at_ms, at_limit=limit))
