"""Grants, and the uses that count against their limits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, delete, insert, or_, select, update

from adapters.storage.sql.repositories.sessions import forgetting
from adapters.storage.sql.rows import from_json, held, listed, to_json
from adapters.storage.sql.session import POSTGRES, SQLITE, Row, Session
from adapters.storage.sql.tables import devices, grant_uses, grants
from domain.devices.model import Device
from domain.grants.model import Grant, Reach, Scope, Subject
from domain.grants.window import Window
from domain.kernel.ids import AccountId, DeviceId, GrantId, KeyId

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
)
_SELECT = select(*GRANT_COLUMNS)

_ID = g.grant_id == bindparam("at_id")
_ACCOUNT = g.account_id == bindparam("at_account")
_KEY = g.key_id == bindparam("at_subject")
_MEMBERSHIP = g.membership_id == bindparam("at_subject")


def _places(statement: Select[Any], dialect: str) -> Select[Any]:
    """The own grants of many devices, and their projects'."""
    here = g.device_id.in_(listed()[dialect])
    around: ColumnElement[bool] = and_(g.project_id.in_(listed("at_projects")[dialect]), g.device_id.is_(None))
    return statement.where(or_(here, around))


def _place(statement: Select[Any]) -> Select[Any]:
    """The device's own grants and its project's."""
    here = g.device_id == bindparam("at_device")
    around: ColumnElement[bool] = and_(g.project_id == bindparam("at_project"), g.device_id.is_(None))
    return statement.where(or_(here, around))


ADD = insert(grants)
GET = _SELECT.where(_ID, _ACCOUNT)
HELD = held(GET)
SAVE = update(grants).where(_ID)
DELETE = delete(grants).where(_ID)
ON_DEVICE = _place(_SELECT).order_by(g.seq)
OF_KEY_ON = _place(_SELECT.where(_KEY)).order_by(g.seq)
OF_MEMBERSHIP_ON = _place(_SELECT.where(_MEMBERSHIP)).order_by(g.seq)
OF_KEY_ON_ALL = {dialect: _places(_SELECT.where(_KEY), dialect).order_by(g.seq) for dialect in (SQLITE, POSTGRES)}
OF_MEMBERSHIP_ON_ALL = {
    dialect: _places(_SELECT.where(_MEMBERSHIP), dialect).order_by(g.seq) for dialect in (SQLITE, POSTGRES)
}
OF_KEY = _SELECT.where(_KEY, _ACCOUNT).order_by(g.seq)
OF_MEMBERSHIP = _SELECT.where(_MEMBERSHIP, _ACCOUNT).order_by(g.seq)
_REACH = select(g.key_id, g.device_id, g.project_id, g.expires_ms)
REACH_OF = {dialect: _REACH.where(g.key_id.in_(among)) for dialect, among in listed().items()}
REACH_ON = {
    dialect: _REACH.where(
        g.key_id.is_not(None),
        or_(
            g.device_id.in_(among),
            and_(g.device_id.is_(None), g.project_id.in_(select(devices.c.project_id).where(devices.c.device_id.in_(among)))),
        ),
    )
    for dialect, among in listed().items()
}

LOCK = _SELECT.where(_ID).with_for_update(key_share=True)
RECENT = (
    select(u.at_ms)
    .where(u.grant_id == bindparam("at_id"), u.at_ms > bindparam("at_since"))
    .order_by(u.at_ms.desc())
    .limit(bindparam("at_limit"))
)
USE = insert(grant_uses)
FORGET_USES = forgetting(grant_uses, u.at_ms < bindparam("at_before"), u.at_ms)


def grant_of(row: Row) -> Grant:
    (grant_id, account_id, key_id, membership_id, device_id, project_id, commands, scope, expires_ms) = row[:9]
    days, from_minute, to_minute, timezone, rate, created_ms, created_by = row[9:]
    return Grant(
        grant_id=grant_id,
        account_id=account_id,
        subject=Subject(key_id, membership_id),
        device_id=device_id,
        project_id=project_id,
        commands=tuple(from_json(commands)),
        scope=Scope(scope),
        expires_ms=expires_ms,
        window=Window(frozenset(from_json(days)), from_minute, to_minute, timezone),
        rate_limit_per_minute=rate,
        created_ms=created_ms,
        created_by=created_by,
    )


def values_of(grant: Grant) -> dict[str, Any]:
    """All but the id."""
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
    }


class SqlGrants:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, grant: Grant) -> None:
        await self._session.write(ADD, grant_id=grant.grant_id, **values_of(grant))

    async def get(self, account_id: AccountId, grant_id: GrantId) -> Grant | None:
        rows = await self._session.read(GET, at_id=grant_id, at_account=account_id)
        return grant_of(rows[0]) if rows else None

    async def held(self, account_id: AccountId, grant_id: GrantId) -> Grant | None:
        rows = await self._session.read(HELD[self._session.writable], at_id=grant_id, at_account=account_id)
        return grant_of(rows[0]) if rows else None

    async def save(self, grant: Grant) -> None:
        await self._session.write(SAVE, at_id=grant.grant_id, **values_of(grant))

    async def delete(self, grant_id: GrantId) -> None:
        await self._session.write(DELETE, at_id=grant_id)

    async def on_device(self, device: Device) -> Sequence[Grant]:
        rows = await self._session.read(ON_DEVICE, at_device=device.device_id, at_project=device.project_id)
        return [grant_of(row) for row in rows]

    async def of_subject_on(self, subject: Subject, device: Device) -> Sequence[Grant]:
        statement = OF_KEY_ON if subject.key_id is not None else OF_MEMBERSHIP_ON
        rows = await self._session.read(
            statement,
            at_subject=subject.key_id or subject.membership_id,
            at_device=device.device_id,
            at_project=device.project_id,
        )
        return [grant_of(row) for row in rows]

    async def of_subject_on_all(self, subject: Subject, devices: Sequence[Device]) -> Sequence[Grant]:
        statements = OF_KEY_ON_ALL if subject.key_id is not None else OF_MEMBERSHIP_ON_ALL
        rows = await self._session.read(
            statements[self._session.dialect],
            at_subject=subject.key_id or subject.membership_id,
            at_listed=to_json(sorted({device.device_id for device in devices})),
            at_projects=to_json(sorted({device.project_id for device in devices})),
        )
        return [grant_of(row) for row in rows]

    async def of_key(self, account_id: AccountId, key_id: KeyId) -> Sequence[Grant]:
        return await self.of_subject(account_id, Subject(key_id=key_id))

    async def of_subject(self, account_id: AccountId, subject: Subject) -> Sequence[Grant]:
        statement = OF_KEY if subject.key_id is not None else OF_MEMBERSHIP
        who = subject.key_id or subject.membership_id
        return [grant_of(row) for row in await self._session.read(statement, at_subject=who, at_account=account_id)]

    async def reach_of(self, key_ids: Sequence[KeyId]) -> Sequence[Reach]:
        return await self._reaches(REACH_OF, key_ids)

    async def reach_on(self, device_ids: Collection[DeviceId]) -> Sequence[Reach]:
        return await self._reaches(REACH_ON, device_ids)

    async def _reaches(self, statements: dict[str, Select[Any]], among: Collection[str]) -> Sequence[Reach]:
        if not among:
            return []
        rows = await self._session.read(statements[self._session.dialect], at_listed=to_json(sorted(set(among))))
        return [Reach(*row) for row in rows]

    async def recent_uses(self, grant: Grant, since_ms: int, limit: int) -> Sequence[int] | None:
        if self._session.writable and self._session.dialect == POSTGRES:  # SQLite has one writer, and what it read stays
            rows = await self._session.write(LOCK, at_id=grant.grant_id)
            if not rows or grant_of(rows[0]) != grant:
                return None
        rows = await self._session.read(RECENT, at_id=grant.grant_id, at_since=since_ms, at_limit=limit)
        return [row[0] for row in rows]

    async def add_use(self, grant_id: GrantId, at_ms: int) -> None:
        await self._session.later(USE, [{"grant_id": grant_id, "at_ms": at_ms}])

    async def forget_uses_before(self, at_ms: int, limit: int) -> int:
        return len(await self._session.write(FORGET_USES, at_before=at_ms, at_limit=limit))
