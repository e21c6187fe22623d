"""Devices and their credentials."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import BindParameter, Column, Select, bindparam, delete, func, insert, or_, select, update

from adapters.storage.sql.rows import Mapper, from_json, held, ignoring, listed, listed_numbers, replacing, to_json
from adapters.storage.sql.session import POSTGRES, SQLITE, Row, Session
from adapters.storage.sql.tables import (
    credentials,
    deliveries,
    device_latest,
    device_metrics,
    devices,
    executions,
    graves,
)
from domain.devices.model import About, Device, DeviceCredentials, DeviceStatus, Profile
from domain.kernel.errors import NotFound
from domain.kernel.ids import AccountId, DeviceId, ProjectId

CREDENTIALS = Mapper(credentials, DeviceCredentials)

_ABOUT = [field.name for field in fields(About) if field.name != "tags"]
_PLAIN = [field.name for field in fields(Device) if field.name != "about"]
_ABOUT_AT = [field.name for field in fields(Device)].index("about")
_STATUS, _PROFILE, _IS_ONLINE, _RELAY_AT = (_PLAIN.index(name) for name in ("status", "profile", "is_online", "relay"))
_STATUSES = {status.value: status for status in DeviceStatus}
_PROFILES = {profile.value: profile for profile in Profile}
_KEPT = frozenset(
    {
        "device_no",
        "device_id",
        "account_id",
        "created_ms",
        "version",
        "relay",
        "is_online",
        "last_seen_ms",
        "sched_rev",
        "sched_rev_device",
    }
)
"""What `save` leaves alone: identity, and what devices say about themselves."""

COLUMNS: list[Column[Any]] = [devices.c[name] for name in (*_PLAIN, *_ABOUT, "tags")]

d = devices.c
_ID = d.device_id == bindparam("at_id")
_SELECT = select(*COLUMNS)
_AT = bindparam("at_ms", type_=d.last_seen_ms.type)
_RELAY = bindparam("at_relay", type_=d.relay.type)
_ONLINE = bindparam("at_online", type_=d.is_online.type)



def _those(dialect: str) -> Select[Any]:
    """On PostgreSQL each is held, in this order, so that two who change the same ones do not wait for each other crosswise."""
    among = select(d.device_no).where(d.device_id.in_(listed()[dialect]))
    return among if dialect == SQLITE else among.order_by(d.device_no).with_for_update(key_share=True)


ADD = insert(devices).returning(d.device_no)
GET = _SELECT.where(_ID, d.account_id == bindparam("at_account"))
HELD = held(GET)
FIND = _SELECT.where(_ID)
FIND_ALL = {dialect: _SELECT.where(d.device_id.in_(among)) for dialect, among in listed().items()}
NUMBERED = {dialect: _SELECT.where(d.device_no.in_(among)) for dialect, among in listed_numbers().items()}
LIST = _SELECT.where(d.account_id == bindparam("at_account")).order_by(d.device_no)
LIST_PROJECT = (
    _SELECT.where(d.account_id == bindparam("at_account"), d.project_id == bindparam("at_project"))
    .order_by(d.device_no)
)
COUNT = select(func.count()).select_from(devices).where(d.account_id == bindparam("at_account"))
SAVE = update(devices).where(_ID, d.version == bindparam("at_version")).returning(d.device_no)
SET_RELAY = update(devices).where(_ID, or_(d.relay.is_(None), d.relay != _RELAY)).values(relay=_RELAY).returning(d.device_no)
SET_RELAYS = {
    dialect: update(devices).where(d.device_id.in_(among), or_(d.relay.is_(None), d.relay != _RELAY)).values(relay=_RELAY)
    for dialect, among in listed().items()
}
SET_ONLINE = update(devices).where(_ID, d.is_online != _ONLINE).values(is_online=_ONLINE).returning(d.device_no)
_TURN = update(devices).where(d.is_online != _ONLINE).values(is_online=_ONLINE).returning(d.device_id)
SET_ONLINE_ALL = {dialect: _TURN.where(d.device_no.in_(_those(dialect))) for dialect in (SQLITE, POSTGRES)}
TOUCH = (
    update(devices)
    .where(d.device_no == bindparam("at_no"), or_(d.last_seen_ms.is_(None), d.last_seen_ms < _AT))
    .values(last_seen_ms=_AT)
)
BUMP = update(devices).where(_ID).values(sched_rev=d.sched_rev + 1).returning(d.sched_rev)
BUMP_ALL = {
    dialect: update(devices).where(d.device_id.in_(among)).values(sched_rev=d.sched_rev + 1)
    for dialect, among in listed().items()
}
SET_REV = update(devices).where(_ID).values(sched_rev_device=bindparam("at_rev", type_=d.sched_rev_device.type))
ONLINE = _SELECT.where(d.is_online).order_by(d.device_no)
DELETING = _SELECT.where(d.status == DeviceStatus.DELETING.value)
NUMBER = select(d.device_no).where(_ID)
DELETE = delete(devices).where(_ID)
DELETE_OWED = delete(deliveries).where(deliveries.c.device_id == bindparam("at_id"))
_STEP: BindParameter[int] = bindparam("at_limit")
_EXECUTIONS = select(executions.c.seq).where(executions.c.device_id == bindparam("at_id")).limit(_STEP)
SHED_EXECUTIONS = delete(executions).where(executions.c.seq.in_(_EXECUTIONS)).returning(executions.c.seq)
_DELIVERIES = select(deliveries.c.no).where(deliveries.c.device_id == bindparam("at_id")).limit(_STEP)
SHED_DELIVERIES = delete(deliveries).where(deliveries.c.no.in_(_DELIVERIES)).returning(deliveries.c.no)
DIG = ignoring(graves)
GRAVES = select(graves.c.device_no, graves.c.deleted_ms).order_by(graves.c.device_no)
CLOSE_GRAVE = delete(graves).where(graves.c.device_no == bindparam("at_no"))
DELETE_METRICS = delete(device_metrics).where(device_metrics.c.device_no == bindparam("at_no"))
DELETE_LATEST = delete(device_latest).where(device_latest.c.device_no == bindparam("at_no"))

GET_CREDENTIALS = CREDENTIALS.select().where(credentials.c.device_id == bindparam("at_id"))
PUT_CREDENTIALS = replacing(credentials, "sealed", "created_ms")
DELETE_CREDENTIALS = delete(credentials).where(credentials.c.device_id == bindparam("at_id"))
ADMITTED = (
    select(*COLUMNS, *CREDENTIALS.columns)
    .join(credentials, credentials.c.device_id == d.device_id)
    .where(d.status == DeviceStatus.ACTIVE.value)
    .order_by(d.device_no)
)
PAGE = (
    CREDENTIALS.select()
    .where(credentials.c.device_id > bindparam("at_after"))
    .order_by(credentials.c.device_id)
    .limit(bindparam("at_limit"))
)
COUNT_CREDENTIALS = select(func.count()).select_from(credentials)
RESEAL = (
    update(credentials)
    .where(credentials.c.device_id == bindparam("at_id"), credentials.c.sealed == bindparam("at_before"))
    .values(sealed=bindparam("at_after"))
    .returning(credentials.c.device_id)
)

def device_of(row: Row) -> Device:
    plain = list(row[: len(_PLAIN)])
    tags = row[len(COLUMNS) - 1]
    about = About(*[*row[len(_PLAIN) : len(COLUMNS) - 1], () if tags == "[]" else tuple(from_json(tags))])
    plain[_STATUS] = _STATUSES[plain[_STATUS]]
    plain[_PROFILE] = _PROFILES[plain[_PROFILE]]
    plain[_IS_ONLINE] = bool(plain[_IS_ONLINE])
    if plain[_RELAY_AT] is not None:
        plain[_RELAY_AT] = bool(plain[_RELAY_AT])
    return Device(*[*plain[:_ABOUT_AT], about, *plain[_ABOUT_AT:]])


def values_of(device: Device) -> dict[str, Any]:
    found = {name: getattr(device, name) for name in _PLAIN}
    found |= {name: getattr(device.about, name) for name in _ABOUT}
    found["tags"] = to_json(device.about.tags)
    found["status"] = device.status.value
    found["profile"] = device.profile.value
    return found


class SqlDevices:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, device: Device) -> Device:
        values = values_of(device)
        del values["device_no"]
        rows = await self._session.write(ADD, **values)
        return replace(device, device_no=rows[0][0])

    async def get(self, account_id: AccountId, device_id: DeviceId) -> Device | None:
        return _maybe(await self._session.read(GET, at_id=device_id, at_account=account_id))

    async def held(self, account_id: AccountId, device_id: DeviceId) -> Device | None:
        return _maybe(await self._session.read(HELD[self._session.writable], at_id=device_id, at_account=account_id))

    async def find(self, device_id: DeviceId) -> Device | None:
        return _maybe(await self._session.read(FIND, at_id=device_id))

    async def find_all(self, device_ids: Collection[DeviceId]) -> Sequence[Device]:
        if not device_ids:
            return []
        rows = await self._session.read(FIND_ALL[self._session.dialect], at_listed=to_json(sorted(set(device_ids))))
        return [device_of(row) for row in rows]

    async def numbered(self, numbers: Collection[int]) -> Sequence[Device]:
        rows = await self._session.read(NUMBERED[self._session.dialect], at_listed=to_json(sorted(numbers)))
        return [device_of(row) for row in rows]

    async def list(self, account_id: AccountId, project_id: ProjectId | None = None) -> Sequence[Device]:
        if project_id is None:
            rows = await self._session.read(LIST, at_account=account_id)
        else:
            rows = await self._session.read(LIST_PROJECT, at_account=account_id, at_project=project_id)
        return [device_of(row) for row in rows]

    async def count(self, account_id: AccountId) -> int:
        return int((await self._session.read(COUNT, at_account=account_id))[0][0])

    async def save(self, device: Device) -> bool:
        values = {name: value for name, value in values_of(device).items() if name not in _KEPT}
        values["version"] = device.version + 1
        return bool(await self._session.write(SAVE, at_id=device.device_id, at_version=device.version, **values))

    async def set_relay(self, device_id: DeviceId, relay: bool) -> bool:
        return bool(await self._session.write(SET_RELAY, at_id=device_id, at_relay=relay))

    async def set_relays(self, relays: Mapping[DeviceId, bool]) -> None:
        for state in (False, True):
            among = sorted(device_id for device_id, relay in relays.items() if relay is state)
            if among:
                rows = [{"at_listed": to_json(among), "at_relay": state}]
                await self._session.later(SET_RELAYS[self._session.dialect], rows)

    async def set_online(self, device_id: DeviceId, online: bool) -> bool:
        return bool(await self._session.write(SET_ONLINE, at_id=device_id, at_online=online))

    async def set_online_all(self, device_ids: Collection[DeviceId], online: bool) -> Collection[DeviceId]:
        among = to_json(sorted(set(device_ids)))
        rows = await self._session.write(SET_ONLINE_ALL[self._session.dialect], at_listed=among, at_online=online)
        return {row[0] for row in rows}

    async def touch(self, seen: Mapping[int, int]) -> None:
        await self._session.many(TOUCH, [{"at_no": no, "at_ms": at_ms} for no, at_ms in sorted(seen.items())])

    async def bump_sched_rev(self, device_id: DeviceId) -> int:
        rows = await self._session.write(BUMP, at_id=device_id)
        if not rows:
            raise NotFound.of("device", device_id)
        return int(rows[0][0])

    async def bump_sched_revs(self, device_ids: Collection[DeviceId]) -> None:
        if device_ids:
            among = to_json(sorted(device_ids))
            await self._session.later(BUMP_ALL[self._session.dialect], [{"at_listed": among}])

    async def set_sched_revs_device(self, revs: Mapping[DeviceId, int]) -> None:
        await self._session.later(SET_REV, [{"at_id": device_id, "at_rev": rev} for device_id, rev in sorted(revs.items())])

    async def online(self) -> Sequence[Device]:
        return [device_of(row) for row in await self._session.read(ONLINE)]

    async def deleting(self) -> Sequence[Device]:
        return [device_of(row) for row in await self._session.read(DELETING)]

    async def shed(self, device_id: DeviceId, limit: int) -> int:
        gone = await self._session.write(SHED_EXECUTIONS, at_id=device_id, at_limit=limit)
        return len(gone) + len(await self._session.write(SHED_DELIVERIES, at_id=device_id, at_limit=limit))

    async def delete(self, device_id: DeviceId, at_ms: int) -> None:
        """Foreign keys take along what has one; the rest is deleted here."""
        rows = await self._session.read(NUMBER, at_id=device_id)
        await self._session.write(DELETE_OWED, at_id=device_id)
        for row in rows:
            await self.forget_values(row[0])
            await self._session.write(DIG[self._session.dialect], device_no=row[0], deleted_ms=at_ms)
        await self._session.write(DELETE, at_id=device_id)

    async def graves(self) -> Sequence[tuple[int, int]]:
        return [(row[0], row[1]) for row in await self._session.read(GRAVES)]

    async def forget_values(self, device_no: int) -> None:
        await self._session.write(DELETE_METRICS, at_no=device_no)
        await self._session.write(DELETE_LATEST, at_no=device_no)

    async def close_grave(self, device_no: int) -> None:
        await self._session.write(CLOSE_GRAVE, at_no=device_no)


def _maybe(rows: Sequence[Row]) -> Device | None:
    return device_of(rows[0]) if rows else None


class SqlCredentials:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def get(self, device_id: DeviceId) -> DeviceCredentials | None:
        return CREDENTIALS.maybe(await self._session.read(GET_CREDENTIALS, at_id=device_id))

    async def put(self, credentials: DeviceCredentials) -> None:
        await self._session.write(PUT_CREDENTIALS[self._session.dialect], **CREDENTIALS.values(credentials))

    async def delete(self, device_id: DeviceId) -> None:
        await self._session.write(DELETE_CREDENTIALS, at_id=device_id)

    async def admitted(self) -> Sequence[tuple[Device, DeviceCredentials]]:
        width = len(COLUMNS)
        rows = await self._session.read(ADMITTED)
        return [(device_of(row), CREDENTIALS.of(row[width:])) for row in rows]

    async def page(self, after: DeviceId | None, limit: int) -> Sequence[DeviceCredentials]:
        rows = await self._session.read(PAGE, at_after=after or "", at_limit=limit)
        return [CREDENTIALS.of(row) for row in rows]

    async def count(self) -> int:
        return int((await self._session.read(COUNT_CREDENTIALS))[0][0])

    async def reseal(self, device_id: DeviceId, before: bytes, after: bytes) -> bool:
        return bool(await self._session.write(RESEAL, at_id=device_id, at_before=before, at_after=after))
