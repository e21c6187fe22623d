"""The instances that hold the connections of devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import bindparam, delete, select, update

from adapters.storage.sql.db_session import DbSession
from adapters.storage.sql.row_mapper import json_integer_list, json_list, to_json, upsert
from adapters.storage.sql.tables import device_sessions
from domain.devices.session_holders import NO_FRONT

s = device_sessions.c

ATTACH = upsert(device_sessions, "front")
_DEVICES = {dialect: s.device_no.in_(among) for dialect, among in json_integer_list().items()}
DETACH = {
    dialect: delete(device_sessions).where(devices, s.front.in_([bindparam("at_front"), NO_FRONT]))
    for dialect, devices in _DEVICES.items()
}
FRONTS = {dialect: select(s.device_no, s.front).where(devices).order_by(s.device_no) for dialect, devices in _DEVICES.items()}
ABANDON = {
    dialect: update(device_sessions).where(s.front.not_in(among)).values(front=NO_FRONT).returning(s.device_no)
    for dialect, among in json_list().items()
}


class SqlDeviceSessionRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def attach(self, device_nos: Collection[int], front: str) -> Collection[int]:
        statement = FRONTS[self._session.dialect].with_for_update()
        before = await self._session.read(statement, at_listed=to_json(sorted(device_nos)))
        rows = [{"device_no": device_no, "front": front} for device_no in sorted(device_nos)]
        await self._session.execute_many(ATTACH[self._session.dialect], rows)
        return {int(device_no) for device_no, earlier in before if earlier != front}

    async def detach(self, device_nos: Collection[int], front: str) -> None:
        if device_nos:
            await self._session.write(DETACH[self._session.dialect], at_listed=to_json(sorted(device_nos)), at_front=front)

    async def fronts(self, device_nos: Collection[int]) -> Mapping[int, str]:
        if not device_nos:
            return {}
        statement = FRONTS[self._session.dialect]
        if self._session.writable:
            statement = statement.with_for_update(read=True)
        found = await self._session.read(statement, at_listed=to_json(sorted(device_nos)))
        return {int(device_no): str(front) for device_no, front in found}

    async def abandon(self, live: Collection[str]) -> Sequence[int]:
        found = await self._session.write(ABANDON[self._session.dialect], at_listed=to_json(sorted(live)))
        return sorted(int(device_no) for [device_no] in found)
