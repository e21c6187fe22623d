"""The instances that hold the connections of devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import bindparam, delete, select, update

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.row_mapper import to_json
from adapters.storage.sql.statement_builders import listed, listed_integers, upsert
from adapters.storage.sql.tables import device_sessions
from domain.devices.ports import NO_FRONT

s = device_sessions.c

ATTACH = upsert(device_sessions, "front")
_AMONG = s.device_no.in_(listed_integers())
DETACH = delete(device_sessions).where(_AMONG, s.front.in_([bindparam("at_front"), NO_FRONT]))
FRONTS = select(s.device_no, s.front).where(_AMONG).order_by(s.device_no)
FRONTS_FOR_SHARE = {False: FRONTS, True: FRONTS.with_for_update(read=True)}
FRONTS_FOR_UPDATE = FRONTS.with_for_update()
ABANDON = update(device_sessions).where(s.front.not_in(listed())).values(front=NO_FRONT).returning(s.device_no)


class SqlDeviceConnectionHolderRepository(SqlRepository):
    async def attach(self, device_nos: Collection[int], front: str) -> Collection[int]:
        before = await self._session.read(FRONTS_FOR_UPDATE, at_listed=to_json(sorted(device_nos)))
        rows = [{"device_no": device_no, "front": front} for device_no in sorted(device_nos)]
        await self._session.execute_many(ATTACH, rows)
        return {int(device_no) for device_no, earlier in before if earlier != front}

    async def detach(self, device_nos: Collection[int], front: str) -> None:
        if device_nos:
            await self._session.write(DETACH, at_listed=to_json(sorted(device_nos)), at_front=front)

    async def fronts(self, device_nos: Collection[int]) -> Mapping[int, str]:
        if not device_nos:
            return {}
        statement = FRONTS_FOR_SHARE[self._session.writable]
        found = await self._session.read(statement, at_listed=to_json(sorted(device_nos)))
        return {int(device_no): str(front) for device_no, front in found}

    async def abandon(self, live: Collection[str]) -> Sequence[int]:
        found = await self._session.write(ABANDON, at_listed=to_json(sorted(live)))
        return sorted(int(device_no) for [device_no] in found)
