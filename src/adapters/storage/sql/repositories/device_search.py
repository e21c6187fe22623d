"""Searching devices. One statement, built once, per combination of filters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, and_, bindparam, case, func, select

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.repositories.devices import DEVICE
from adapters.storage.sql.row_mapper import to_json
from adapters.storage.sql.statement_builders import escape_like, without_none
from adapters.storage.sql.tables import dead_letters, devices, group_members
from domain.devices.model import Device, DeviceStatus
from domain.devices.search import MAX_SEARCH_WORDS, DeviceCounts, DeviceSearch, DeviceSort, DeviceStateFilter
from domain.kernel.ids import AccountId

d = devices.c
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
_SEARCHED = func.lower(d.name + " " + d.device_id + " " + func.coalesce(d.location, "") + " " + d.tags + " " + d.app_type)
_SEEN_MS = func.coalesce(d.last_seen_ms, 0)
_ORDERS: dict[DeviceSort, tuple[ColumnElement[Any], ...]] = {
    DeviceSort.CREATED: (d.device_no,),
    DeviceSort.NAME: (func.lower(d.name), d.device_no),
    DeviceSort.LAST_SEEN: (_SEEN_MS, d.device_no),
    DeviceSort.LAST_SEEN_NEWEST: (_SEEN_MS.desc(), d.device_no),
}
_MEMBERS = select(group_members.c.device_id).where(group_members.c.group_id == bindparam("at_group"))
COUNT_BY_STATE = select(
    func.count(), *(func.coalesce(func.sum(case((condition, 1), else_=0)), 0) for condition in _STATES.values())
).where(d.account_id == bindparam("at_account"), _EXISTS)


_FILTERS: dict[str, ColumnElement[bool]] = {
    **{f"at_word_{index}": _SEARCHED.like(bindparam(f"at_word_{index}"), escape="\\") for index in range(MAX_SEARCH_WORDS)},
    "at_external_id": d.external_id == bindparam("at_external_id"),
    "at_group": d.device_id.in_(_MEMBERS),
    "at_tag": func.replace(d.tags, bindparam("at_tag", type_=Text()), "") != d.tags,
    "at_project": d.project_id == bindparam("at_project"),
}
"""By the parameter that each has."""
COUNT_DEAD_LETTERS = (
    select(func.count())
    .select_from(dead_letters.join(devices, dead_letters.c.device_id == d.device_id))
    .where(d.account_id == bindparam("at_account"))
)


@cache
def find_statement(given: frozenset[str], state: DeviceStateFilter | None, sort: DeviceSort, limited: bool) -> Select[Any]:
    statement = _filtered(DEVICE.select(), given, state).order_by(*_ORDERS[sort])
    return statement.limit(bindparam("at_limit")).offset(bindparam("at_offset")) if limited else statement


@cache
def count_statement(given: frozenset[str], state: DeviceStateFilter | None) -> Select[Any]:
    return _filtered(select(func.count()), given, state)


def _filtered(statement: Select[Any], given: frozenset[str], state: DeviceStateFilter | None) -> Select[Any]:
    filters = [_FILTERS[name] for name in sorted(given)] + ([] if state is None else [_STATES[state]])
    return statement.where(d.account_id == bindparam("at_account"), _EXISTS, *filters)


def _parameters(search: DeviceSearch) -> dict[str, Any]:
    words = {f"at_word_{index}": f"%{escape_like(word)}%" for index, word in enumerate(search.words)}
    tag = None if search.tag is None else to_json(search.tag)  # with its quotes, so a whole tag of the JSON list
    named = without_none(at_project=search.project_id, at_external_id=search.external_id, at_group=search.group_id, at_tag=tag)
    return words | named


class SqlDeviceSearchRepository(SqlRepository):
    async def find(self, account_id: AccountId, search: DeviceSearch) -> Sequence[Device]:
        limited, params = search.limit is not None, _parameters(search)
        statement = find_statement(frozenset(params), search.state, search.sort, limited)
        page = {"at_limit": search.limit, "at_offset": search.offset} if limited else {}
        return await self._list(DEVICE, statement, at_account=account_id, **params, **page)

    async def count(self, account_id: AccountId, search: DeviceSearch) -> int:
        params = _parameters(search)
        return await self._number(count_statement(frozenset(params), search.state), at_account=account_id, **params)

    async def count_by_state(self, account_id: AccountId) -> DeviceCounts:
        total, *counts = map(int, (await self._session.read(COUNT_BY_STATE, at_account=account_id))[0])
        [[letters]] = await self._session.read(COUNT_DEAD_LETTERS, at_account=account_id)
        by_state = {state.value: count for state, count in zip(_STATES, counts, strict=True)}
        return DeviceCounts(total, **by_state, dead_letters=int(letters))
