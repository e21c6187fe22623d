"""Devices.

Device types.

Groups of devices and their members.

Searching devices. One statement, built once, per combination of filters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    Text,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)

from adapters.storage.sql.mapping import (
    JSON_TUPLE,
    AccountEntityStatements,
    EmbeddedDataclassColumns,
    RowMapper,
    SqlAccountEntityRepository,
    SqlRepository,
    enum_converter,
    to_json,
    unique_violation_as,
)
from adapters.storage.sql.repositories.device_channels import CHANNELS, SqlDeviceChannelMixin, channels_from_json
from adapters.storage.sql.session import LOOK_UP, POSTGRES, SQLITE, Row
from adapters.storage.sql.statements import (
    behind,
    escape_like,
    for_update,
    insert_or_ignore,
    listed,
    listed_integers,
    position_parameters,
    without_none,
)
from adapters.storage.sql.tables import (
    dead_letters,
    deliveries,
    device_drops,
    device_groups,
    device_health,
    device_latest,
    device_metrics,
    device_types,
    devices,
    executions,
    grants,
    group_members,
    late_readings,
    left_edges,
    tombstones,
)
from domain.devices.lookup import device_changed_error, external_id_taken_error, name_taken_error
from domain.devices.model import Device, DeviceGroup, DeviceMetadata, DeviceStatus, DeviceType, FirmwareProfile
from domain.devices.search import DeviceCounts, DeviceSearch, DeviceSort, DeviceStateFilter
from domain.kernel.folding import MAX_TERMS, fold, inside
from domain.kernel.ids import AccountId, DeviceId, DeviceTypeId, GroupId, ProjectId

_NOT_SAVED = (
    "device_no",
    "device_id",
    "account_id",
    "created_ms",
    "version",
    "relay",
    "relay_ms",
    "is_online",
    "last_seen_ms",
    "sched_rev",
    "sched_rev_device",
)
"""Columns that `save` does not change: identity, and what the device reports."""

_HAS_LEFT_EDGES = exists().where(left_edges.c.device_id == devices.c.device_id).correlate(devices).label("has_left_edges")
_GROUP_IDS = (
    select(func.aggregate_strings(group_members.c.group_id, literal_column("','")))  # type: ignore[arg-type]  # a bound one needs a compile per use
    .where(group_members.c.device_id == devices.c.device_id)
    .correlate(devices)
    .scalar_subquery()
    .label("group_ids")
)
DEVICE = RowMapper(
    devices,
    Device,
    {
        "status": enum_converter(DeviceStatus),
        "profile": enum_converter(FirmwareProfile),
        "tags": JSON_TUPLE,
        "group_ids": (",".join, lambda text: tuple(sorted(text.split(","))) if text else ()),
        "channels": (to_json, channels_from_json),
    },
    always=("group_ids", "channels"),
    nested={"about": EmbeddedDataclassColumns(DeviceMetadata)},
    computed={"has_left_edges": _HAS_LEFT_EDGES, "group_ids": _GROUP_IDS, "channels": CHANNELS},
)

d = devices.c
_ID = d.device_id == bindparam("at_id")
_SELECT = DEVICE.select()
_SEEN_MS = bindparam("at_ms", type_=d.last_seen_ms.type)
_RELAY = bindparam("at_relay", type_=d.relay.type)
_ONLINE = bindparam("at_online", type_=d.is_online.type)


def _select_device_numbers(dialect: str) -> Select[Any]:
    """Device numbers in order; PostgreSQL locks the rows in this order, so that two transactions cannot deadlock."""
    among = select(d.device_no).where(d.device_id.in_(listed()))
    return among if dialect == SQLITE else among.order_by(d.device_no).with_for_update(key_share=True)


ADD = insert(devices).returning(d.device_no)
GET = _SELECT.where(_ID, d.account_id == bindparam("at_account")).execution_options(**LOOK_UP)
GET_FOR_UPDATE = for_update(GET)
GET_TO_CUT_OFF = {False: GET, True: GET.with_for_update()}
"""FOR UPDATE: it waits for the transactions that accept a command and hold the device FOR KEY SHARE, and they for it."""
FIND = _SELECT.where(_ID)
LIST_BY_IDS = _SELECT.where(d.device_id.in_(listed()))
LIST_BY_HARDWARE_ID = _SELECT.where(d.account_id == bindparam("at_account"), func.upper(d.external_id) == bindparam("at_upper"))
LIST_BY_EXTERNAL_IDS = _SELECT.where(d.account_id == bindparam("at_account"), d.external_id.in_(listed()))
LIST_BY_NUMBERS = _SELECT.where(d.device_no.in_(listed_integers()))
LIST = _SELECT.where(d.account_id == bindparam("at_account")).order_by(d.device_no)
LIST_BY_PROJECT = LIST.where(d.project_id == bindparam("at_project"))
COUNT = select(func.count()).select_from(devices).where(d.account_id == bindparam("at_account"))
SAVE = update(devices).where(_ID, d.version == bindparam("at_version")).returning(d.device_no)
CHANGED_ROWS = select(func.changes())
"""On SQLite: of the statement before."""
SET_RELAYS = (
    update(devices)
    .where(d.device_id.in_(listed()), or_(d.relay.is_(None), d.relay != _RELAY))
    .values(relay=_RELAY, relay_ms=bindparam("at_ms", type_=d.relay_ms.type))
)
SET_ONLINE = update(devices).where(_ID, d.is_online != _ONLINE).values(is_online=_ONLINE).returning(d.device_no)
_SET_ONLINE = update(devices).where(d.is_online != _ONLINE).values(is_online=_ONLINE).returning(d.device_id)
SET_ONLINE_MANY = {dialect: _SET_ONLINE.where(d.device_no.in_(_select_device_numbers(dialect))) for dialect in (SQLITE, POSTGRES)}
TOUCH = (
    update(devices)
    .where(d.device_no == bindparam("at_no"), or_(d.last_seen_ms.is_(None), d.last_seen_ms < _SEEN_MS))
    .values(last_seen_ms=_SEEN_MS)
)
INCREMENT_SCHED_REVS = update(devices).where(d.device_id.in_(listed())).values(sched_rev=d.sched_rev + 1)
SKIP_SCHED_REVS = (
    update(devices)
    .where(or_(d.sched_rev > 0, d.profile == FirmwareProfile.NATIVE.value))
    .values(sched_rev=d.sched_rev + bindparam("at_count", type_=d.sched_rev.type))
)
SET_SCHED_REV_DEVICE = update(devices).where(_ID).values(sched_rev_device=bindparam("at_rev", type_=d.sched_rev_device.type))
LIST_ONLINE = _SELECT.where(d.is_online).order_by(d.device_no)
LIST_DELETING = _SELECT.where(d.status == DeviceStatus.DELETING.value)
GET_NUMBER = select(d.device_no).where(_ID)
DELETE = delete(devices).where(_ID)
DELETE_DELIVERIES = delete(deliveries).where(deliveries.c.device_id == bindparam("at_id"))
_LIMIT: BindParameter[int] = bindparam("at_limit")
_EXECUTION_BATCH = select(executions.c.seq).where(executions.c.device_id == bindparam("at_id")).limit(_LIMIT)
DELETE_EXECUTION_BATCH = delete(executions).where(executions.c.seq.in_(_EXECUTION_BATCH)).returning(executions.c.seq)
_DELIVERY_BATCH = select(deliveries.c.no).where(deliveries.c.device_id == bindparam("at_id")).limit(_LIMIT)
DELETE_DELIVERY_BATCH = delete(deliveries).where(deliveries.c.no.in_(_DELIVERY_BATCH)).returning(deliveries.c.no)
ADD_TOMBSTONE = insert_or_ignore(tombstones)
LIST_TOMBSTONES = select(tombstones.c.device_no, tombstones.c.deleted_ms).order_by(tombstones.c.device_no)
DELETE_TOMBSTONE = delete(tombstones).where(tombstones.c.device_no == bindparam("at_no"))
DELETE_REPORTED = [
    delete(table).where(table.c.device_no == bindparam("at_no"))
    for table in (device_metrics, device_latest, device_health, device_drops, late_readings)
]


def _folded(device: Device) -> dict[str, str]:
    """What no field of a device has: the columns that it is found and sorted by."""
    return {"folded_name": fold(device.name), "search_text": DeviceSearch.text_of(device)}


def _require_one(changed: Sequence[Row]) -> tuple[()]:
    if changed[0][0] != 1:
        raise device_changed_error()
    return ()


def _saved_values(device: Device) -> dict[str, Any]:
    of_row = {"at_id": device.device_id, "at_version": device.version}
    return of_row | DEVICE.values(device, *_NOT_SAVED) | _folded(device) | {"version": device.version + 1}


class SqlDeviceRepository(SqlDeviceChannelMixin):
    async def add(self, device: Device) -> Device:
        with unique_violation_as(lambda: external_id_taken_error(device.external_id)):
            rows = await self._session.write(ADD, **DEVICE.values(device, "device_no"), **_folded(device))
        return replace(device, device_no=rows[0][0])

    async def add_many(self, new: Sequence[Device]) -> Sequence[Device]:
        if not new or self._session.dialect == POSTGRES:
            return [await self.add(device) for device in new]
        rows = [(ADD, {**DEVICE.values(device, "device_no"), **_folded(device)}) for device in new]
        with unique_violation_as(lambda: external_id_taken_error(None)):
            added = await self._session.write_batch(*rows)
        return [replace(device, device_no=device_no) for device, [[device_no]] in zip(new, added, strict=True)]

    async def get(self, account_id: AccountId, device_id: DeviceId) -> Device | None:
        statement = GET_FOR_UPDATE[self._session.locks_reads]
        return await self._first(DEVICE, statement, at_id=device_id, at_account=account_id)

    async def get_for_update(self, account_id: AccountId, device_id: DeviceId) -> Device | None:
        statement = GET_FOR_UPDATE[self._session.writable]
        return await self._first(DEVICE, statement, at_id=device_id, at_account=account_id)

    async def get_to_cut_off(self, account_id: AccountId, device_id: DeviceId) -> Device | None:
        return await self._first(DEVICE, GET_TO_CUT_OFF[self._session.writable], at_id=device_id, at_account=account_id)

    async def find(self, device_id: DeviceId) -> Device | None:
        return await self._first(DEVICE, FIND, at_id=device_id)

    async def list_by_ids(self, device_ids: Collection[DeviceId]) -> Sequence[Device]:
        return await self._list(DEVICE, LIST_BY_IDS, at_listed=to_json(sorted(set(device_ids)))) if device_ids else []

    async def list_by_external_ids(self, account_id: AccountId, external_ids: Collection[str]) -> Sequence[Device]:
        if not external_ids:
            return []
        among = to_json(sorted(set(external_ids)))
        return await self._list(DEVICE, LIST_BY_EXTERNAL_IDS, at_account=account_id, at_listed=among)

    async def list_by_hardware_id(self, account_id: AccountId, hardware_id: str) -> Sequence[Device]:
        found = await self._list(DEVICE, LIST_BY_HARDWARE_ID, at_account=account_id, at_upper=hardware_id.upper())
        return [device for device in found if (device.external_id or "").isascii()]  # PostgreSQL makes an I of a dotless one

    async def list_by_numbers(self, numbers: Collection[int]) -> Sequence[Device]:
        return await self._list(DEVICE, LIST_BY_NUMBERS, at_listed=to_json(sorted(numbers)))

    async def list(self, account_id: AccountId, project_id: ProjectId | None = None) -> Sequence[Device]:
        if project_id is None:
            return await self._list(DEVICE, LIST, at_account=account_id)
        return await self._list(DEVICE, LIST_BY_PROJECT, at_account=account_id, at_project=project_id)

    async def count(self, account_id: AccountId) -> int:
        return await self._number(COUNT, at_account=account_id)

    async def save_deferred(self, device: Device) -> bool:
        if self._session.dialect == POSTGRES:
            return await self.save(device)
        await self._session.execute_many(SAVE, [_saved_values(device)], defer=True)
        await self._session.read_then_write(CHANGED_ROWS, _require_one)
        return True

    async def save(self, device: Device) -> bool:
        with unique_violation_as(lambda: external_id_taken_error(device.external_id)):
            return bool(await self._session.write(SAVE, **_saved_values(device)))

    async def set_relay_many(self, relays: Mapping[DeviceId, bool], at_ms: int) -> None:
        for state in (False, True):
            among = sorted(device_id for device_id, relay in relays.items() if relay is state)
            if among:
                rows = [{"at_listed": to_json(among), "at_relay": state, "at_ms": at_ms}]
                await self._session.execute_many(SET_RELAYS, rows, defer=True)

    async def set_online(self, device_id: DeviceId, online: bool) -> bool:
        return bool(await self._session.write(SET_ONLINE, at_id=device_id, at_online=online))

    async def set_online_many(self, device_ids: Collection[DeviceId], online: bool) -> Collection[DeviceId]:
        among = to_json(sorted(set(device_ids)))
        rows = await self._session.write(SET_ONLINE_MANY[self._session.dialect], at_listed=among, at_online=online)
        return {row[0] for row in rows}

    async def update_last_seen(self, seen: Mapping[int, int]) -> None:
        await self._session.execute_many(TOUCH, [{"at_no": no, "at_ms": at_ms} for no, at_ms in sorted(seen.items())])

    async def increment_plan_revisions(self, device_ids: Collection[DeviceId]) -> None:
        if device_ids:
            among = to_json(sorted(device_ids))
            await self._session.execute_many(INCREMENT_SCHED_REVS, [{"at_listed": among}], defer=True)

    async def skip_plan_revisions(self, count: int) -> None:
        await self._session.write(SKIP_SCHED_REVS, at_count=count)

    async def set_device_plan_revisions(self, revs: Mapping[DeviceId, int]) -> None:
        await self._session.execute_many(
            SET_SCHED_REV_DEVICE, [{"at_id": device_id, "at_rev": rev} for device_id, rev in sorted(revs.items())], defer=True
        )

    async def list_online(self) -> Sequence[Device]:
        return await self._list(DEVICE, LIST_ONLINE)

    async def list_deleting(self) -> Sequence[Device]:
        return await self._list(DEVICE, LIST_DELETING)

    async def delete_batch(self, device_id: DeviceId, limit: int) -> int:
        gone = await self._session.write(DELETE_EXECUTION_BATCH, at_id=device_id, at_limit=limit)
        return len(gone) + await self._count_changed(DELETE_DELIVERY_BATCH, at_id=device_id, at_limit=limit)

    async def delete(self, device_id: DeviceId, at_ms: int) -> None:
        """Deletes the rows that no foreign key deletes with the device."""
        rows = await self._session.read(GET_NUMBER, at_id=device_id)
        await self._session.write(DELETE_DELIVERIES, at_id=device_id)
        for row in rows:
            await self.delete_reported_data(row[0])
            await self._session.write(ADD_TOMBSTONE, device_no=row[0], deleted_ms=at_ms)
        await self._session.write(DELETE, at_id=device_id)

    async def list_tombstones(self) -> Sequence[tuple[int, int]]:
        return [(row[0], row[1]) for row in await self._session.read(LIST_TOMBSTONES)]

    async def delete_reported_data(self, device_no: int) -> None:
        for statement in DELETE_REPORTED:
            await self._session.write(statement, at_no=device_no)

    async def delete_tombstone(self, device_no: int) -> None:
        await self._session.write(DELETE_TOMBSTONE, at_no=device_no)


DEVICE_TYPE = RowMapper(device_types, DeviceType)

TYPES = AccountEntityStatements(
    DEVICE_TYPE,
    "device_type_id",
    unchanged=("account_id", "created_ms"),
    lock=lambda one: {False: one, True: one.with_for_update()},
)
"""A stronger lock than for other rows: only this one makes a device that gets the type wait, through its foreign key."""
LOCK_TYPE_SHARED = select(device_types.c.device_type_id).where(TYPES.is_id).with_for_update(read=True)
COUNT_DEVICES = select(func.count()).select_from(devices).where(devices.c.device_type_id == bindparam("at_id"))


class SqlDeviceTypeRepository(SqlAccountEntityRepository[DeviceType]):
    """Deleting a type deletes its definitions and clears the type of its devices, by foreign key."""

    statements = TYPES
    list = SqlAccountEntityRepository.list_by_account

    async def lock_for_share(self, device_type_id: DeviceTypeId) -> None:
        if self._takes_locks:
            await self._session.read(LOCK_TYPE_SHARED, at_id=device_type_id)  # SQLite has only one writer

    async def count_devices(self, device_type_id: DeviceTypeId) -> int:
        return await self._number(COUNT_DEVICES, at_id=device_type_id)


GROUP = RowMapper(device_groups, DeviceGroup)

g, m = device_groups.c, group_members.c
GROUPS = AccountEntityStatements(GROUP, "group_id", exists_error=name_taken_error)
LIST_GROUPS_BY_PROJECT = GROUPS.list.where(g.project_id == bindparam("at_project"))
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
        return await self._list(GROUP, LIST_GROUPS_BY_PROJECT, at_account=account_id, at_project=project_id)

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


_EXISTS = d.status != DeviceStatus.DELETING.value
_ACTIVE = d.status == DeviceStatus.ACTIVE.value
_STATES: dict[DeviceStateFilter, ColumnElement[bool]] = {
    DeviceStateFilter.ONLINE: and_(_ACTIVE, d.is_online),
    DeviceStateFilter.OFFLINE: and_(_ACTIVE, ~d.is_online),
    DeviceStateFilter.ON: d.relay.is_(True),
    DeviceStateFilter.OFF: d.relay.is_(False),
    DeviceStateFilter.PENDING: d.status == DeviceStatus.PENDING.value,
    DeviceStateFilter.DISABLED: d.status == DeviceStatus.DISABLED.value,
    DeviceStateFilter.REVOKED: d.status == DeviceStatus.REVOKED.value,
}
_LAST_SEEN_MS = func.coalesce(d.last_seen_ms, 0)
_ORDERS: dict[DeviceSort, tuple[ColumnElement[Any], ...]] = {
    DeviceSort.CREATED: (d.device_no,),
    DeviceSort.NAME: (d.folded_name, d.device_no),
    DeviceSort.LAST_SEEN: (_LAST_SEEN_MS, d.device_no),
    DeviceSort.LAST_SEEN_NEWEST: (-_LAST_SEEN_MS, d.device_no),
}
_MEMBERS = select(group_members.c.device_id).where(group_members.c.group_id == bindparam("at_group"))
COUNT_BY_STATE = select(
    func.count(), *(func.coalesce(func.sum(case((condition, 1), else_=0)), 0) for condition in _STATES.values())
).where(d.account_id == bindparam("at_account"), _EXISTS)


def _contains(parameter: str) -> ColumnElement[bool]:
    return d.search_text.like(bindparam(parameter), escape="\\")


_FILTERS: dict[str, ColumnElement[bool]] = {
    **{f"at_word_{index}": _contains(f"at_word_{index}") for index in range(MAX_TERMS)},
    "at_external_id": d.external_id == bindparam("at_external_id"),
    "at_group": d.device_id.in_(_MEMBERS),
    "at_tag": func.replace(d.tags, bindparam("at_tag", type_=Text()), "") != d.tags,
    "at_project": d.project_id == bindparam("at_project"),
}
"""By the parameter that each has."""
_WORDS = frozenset(name for name in _FILTERS if name.startswith("at_word_"))
COUNT_DEAD_LETTERS = (
    select(func.count())
    .select_from(dead_letters.join(devices, dead_letters.c.device_id == d.device_id))
    .where(d.account_id == bindparam("at_account"))
)


@cache
def find_statement(
    given: frozenset[str], state: DeviceStateFilter | None, sort: DeviceSort | None, limited: bool, after: bool = False
) -> Select[Any]:
    """Without `sort`, the parameters `at_start_…` are those of the words where they begin words."""
    starts = [_contains(name.replace("word", "start")) for name in sorted(given) if name in _WORDS and sort is None]
    order = [*([case((and_(*starts), 0), else_=1)] if starts else []), *_ORDERS[sort or DeviceSort.CREATED]]
    statement = _filtered(DEVICE.select(), given, state).order_by(*order)
    statement = statement.where(behind(*order)) if after else statement
    return statement.limit(bindparam("at_limit")) if limited else statement


@cache
def count_statement(given: frozenset[str], state: DeviceStateFilter | None) -> Select[Any]:
    return _filtered(select(func.count()), given, state)


def _filtered(statement: Select[Any], given: frozenset[str], state: DeviceStateFilter | None) -> Select[Any]:
    filters = [_FILTERS[name] for name in sorted(given)] + ([] if state is None else [_STATES[state]])
    return statement.where(d.account_id == bindparam("at_account"), _EXISTS, *filters)


def _parameters(search: DeviceSearch) -> dict[str, Any]:
    words = {f"at_word_{index}": f"%{escape_like(inside(word))}%" for index, word in enumerate(search.words)}
    tag = None if search.tag is None else to_json(search.tag)  # with its quotes, so a whole tag of the JSON list
    named = without_none(at_project=search.project_id, at_external_id=search.external_id, at_group=search.group_id, at_tag=tag)
    return words | named


class SqlDeviceSearchRepository(SqlRepository):
    async def find(self, account_id: AccountId, search: DeviceSearch) -> Sequence[Device]:
        limited, params = search.limit is not None, _parameters(search)
        statement = find_statement(frozenset(params), search.state, search.sort, limited, search.after is not None)
        page = without_none(at_limit=search.limit) | position_parameters(search.after or ())
        words = () if search.sort is not None else search.words
        starts = {f"at_start_{index}": f"%{escape_like(word)}%" for index, word in enumerate(words)}
        return await self._list(DEVICE, statement, at_account=account_id, **params, **starts, **page)

    async def count(self, account_id: AccountId, search: DeviceSearch) -> int:
        params = _parameters(search)
        return await self._number(count_statement(frozenset(params), search.state), at_account=account_id, **params)

    async def count_by_state(self, account_id: AccountId) -> DeviceCounts:
        total, *counts = map(int, (await self._session.read(COUNT_BY_STATE, at_account=account_id))[0])
        [[letters]] = await self._session.read(COUNT_DEAD_LETTERS, at_account=account_id)
        by_state = {state.value.lower(): count for state, count in zip(_STATES, counts, strict=True)}
        return DeviceCounts(total, **by_state, dead_letters=int(letters))
