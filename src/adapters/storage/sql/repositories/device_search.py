"""Searching devices. One statement, built once, per combination of filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, and_, bindparam, case, func, select

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.repositories.devices import DEVICE
from adapters.storage.sql.row_mapper import to_json
from adapters.storage.sql.statement_builders import escape_like, without_none
from adapters.storage.sql.tables import dead_letters, devices, group_members
from domain.devices.model import Device, DeviceStatus
from domain.devices.search import DeviceCounts, DeviceSearch, DeviceSort, DeviceStateFilter
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


@dataclass(frozen=True, slots=True)
class _SearchFilters:
    """The shape of a search: what its statement depends on."""

    words: int
    state: DeviceStateFilter | None
    project: bool
    external_id: bool
    group: bool
    tag: bool

    @classmethod
    def of(cls, search: DeviceSearch) -> _SearchFilters:
        given = (search.project_id, search.external_id, search.group_id, search.tag)
        return cls(len(search.words), search.state, *(value is not None for value in given))

    def apply(self, statement: Select[Any]) -> Select[Any]:
        statement = statement.where(d.account_id == bindparam("at_account"), _EXISTS)
        for index in range(self.words):
            statement = statement.where(_SEARCHED.like(bindparam(f"at_word_{index}"), escape="\\"))
        if self.state is not None:
            statement = statement.where(_STATES[self.state])
        if self.external_id:
            statement = statement.where(d.external_id == bindparam("at_external_id"))
        if self.group:
            statement = statement.where(d.device_id.in_(_MEMBERS))
        if self.tag:
            statement = statement.where(func.replace(d.tags, bindparam("at_tag", type_=Text()), "") != d.tags)
        return statement.where(d.project_id == bindparam("at_project")) if self.project else statement


COUNT_DEAD_LETTERS = (
    select(func.count())
    .select_from(dead_letters.join(devices, dead_letters.c.device_id == d.device_id))
    .where(d.account_id == bindparam("at_account"))
)


@cache
def find_statement(filters: _SearchFilters, sort: DeviceSort, limited: bool) -> Select[Any]:
    statement = filters.apply(DEVICE.select()).order_by(*_ORDERS[sort])
    return statement.limit(bindparam("at_limit")).offset(bindparam("at_offset")) if limited else statement


@cache
def count_statement(filters: _SearchFilters) -> Select[Any]:
    return filters.apply(select(func.count()))


def _parameters(account_id: AccountId, search: DeviceSearch) -> dict[str, Any]:
    words = {f"at_word_{index}": f"%{escape_like(word)}%" for index, word in enumerate(search.words)}
    tag = None if search.tag is None else to_json(search.tag)  # with its quotes, so a whole tag of the JSON list
    named = without_none(at_project=search.project_id, at_external_id=search.external_id, at_group=search.group_id, at_tag=tag)
    return {"at_account": account_id, **words, **named}


class SqlDeviceSearchRepository(SqlRepository):
    async def find(self, account_id: AccountId, search: DeviceSearch) -> Sequence[Device]:
        limited = search.limit is not None
        statement = find_statement(_SearchFilters.of(search), search.sort, limited)
        page = {"at_limit": search.limit, "at_offset": search.offset} if limited else {}
        return await self._list(DEVICE, statement, **_parameters(account_id, search), **page)

    async def count(self, account_id: AccountId, search: DeviceSearch) -> int:
        statement = count_statement(_SearchFilters.of(search))
        return await self._number(statement, **_parameters(account_id, search))

    async def count_by_state(self, account_id: AccountId) -> DeviceCounts:
        total, *counts = map(int, (await self._session.read(COUNT_BY_STATE, at_account=account_id))[0])
        [[letters]] = await self._session.read(COUNT_DEAD_LETTERS, at_account=account_id)
        by_state = {state.value: count for state, count in zip(_STATES, counts, strict=True)}
        return DeviceCounts(total, **by_state, dead_letters=int(letters))
