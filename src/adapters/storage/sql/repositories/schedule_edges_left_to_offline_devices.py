"""Edges that are left to offline devices. A row is claimed by deleting it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, insert, update

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.row_mapper import RowMapper, enum_converter, to_json
from adapters.storage.sql.statement_builders import listed
from adapters.storage.sql.tables import devices, left_edges
from domain.kernel.ids import DeviceId
from domain.schedules.model import OfflineScheduleEdge, SwitchEdge

LEFT_EDGE: RowMapper[OfflineScheduleEdge] = RowMapper(left_edges, OfflineScheduleEdge, {"edge": enum_converter(SwitchEdge)})

e, d = left_edges.c, devices.c
_KEY = (
    e.schedule_id == bindparam("at_schedule"),
    e.revision == bindparam("at_revision"),
    e.edge == bindparam("at_edge"),
    e.due_ts == bindparam("at_due"),
)

ADD_LEFT = insert(left_edges)
LIST_LEFT_BY_DEVICES = LEFT_EDGE.select().where(e.device_id.in_(listed()))
LIST_LEFT_OF_ONLINE = (
    LEFT_EDGE.select()
    .join(devices, d.device_id == e.device_id)
    .where(d.is_online)
    .order_by(e.resolve_ms.nulls_first())
    .limit(bindparam("at_limit"))
)
SET_PLAN_HELD = update(left_edges).where(*_KEY).values(holds_plan=bindparam("at_holds", type_=e.holds_plan.type))
SET_RESOLVE_TIME = update(left_edges).where(*_KEY).values(resolve_ms=bindparam("at_resolve", type_=e.resolve_ms.type))
TAKE_LEFT = delete(left_edges).where(*_KEY).returning(e.due_ts)


def _key(edge: OfflineScheduleEdge) -> dict[str, Any]:
    return {"at_schedule": edge.schedule_id, "at_revision": edge.revision, "at_edge": edge.edge.value, "at_due": edge.due_ts}


class SqlOfflineScheduleEdgeMixin(SqlRepository):
    """The part of the schedule repository that stores left edges."""

    async def add_left(self, edges: Sequence[OfflineScheduleEdge]) -> None:
        await self._session.execute_many(ADD_LEFT, [LEFT_EDGE.values(edge) for edge in edges])

    async def list_left_by_devices(self, device_ids: Collection[DeviceId]) -> Sequence[OfflineScheduleEdge]:
        return await self._list(LEFT_EDGE, LIST_LEFT_BY_DEVICES, at_listed=to_json(sorted(device_ids)))

    async def list_left_of_online_devices(self, limit: int) -> Sequence[OfflineScheduleEdge]:
        return await self._list(LEFT_EDGE, LIST_LEFT_OF_ONLINE, at_limit=limit)

    async def set_plan_held(self, edges: Sequence[OfflineScheduleEdge], holds: bool) -> None:
        await self._session.execute_many(SET_PLAN_HELD, [_key(edge) | {"at_holds": holds} for edge in edges])

    async def set_resolve_time(self, edges: Sequence[OfflineScheduleEdge], resolve_ms: int) -> None:
        await self._session.execute_many(SET_RESOLVE_TIME, [_key(edge) | {"at_resolve": resolve_ms} for edge in edges])

    async def take_left(self, edges: Sequence[OfflineScheduleEdge]) -> Sequence[OfflineScheduleEdge]:
        return [edge for edge in edges if await self._session.write(TAKE_LEFT, **_key(edge))]
