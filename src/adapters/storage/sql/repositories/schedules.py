"""Schedules, and their fired edges. The key of an edge is unique, so no edge fires twice.

Edges that are left to offline devices. A row is claimed by deleting it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import BindParameter, bindparam, delete, func, insert, or_, select, text, update

from adapters.storage.errors import edge_recorded_error, slot_taken_error
from adapters.storage.sql.mapping import (
    EntityStatements,
    RowMapper,
    SqlRepository,
    SqlStoredEntityRepository,
    enum_converter,
    from_json,
    to_json,
    unique_violation_as,
)
from adapters.storage.sql.session import POSTGRES, SQLITE
from adapters.storage.sql.statements import (
    behind,
    bulk_insert,
    bulk_update,
    delete_batch,
    during,
    listed,
    page_start,
    position_parameters,
)
from adapters.storage.sql.tables import devices, left_edges, schedule_edges, schedules
from adapters.storage.sql.tables.commands import ENDED, LIVE, WAITING_POSTGRES, WAITING_SQLITE
from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.ids import AccountId, DeviceId, ScheduleId
from domain.schedules.model import (
    NOT_HELD,
    SKIPPED_OUTCOMES,
    DecidedScheduleEdge,
    EdgeOutcome,
    MisfirePolicy,
    OfflineScheduleEdge,
    Schedule,
    ScheduledCommand,
    ScheduleStatus,
    SwitchEdge,
)

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
LIST_LEFT_TO_RESOLVE = (
    LEFT_EDGE.select()
    .join(devices, d.device_id == e.device_id)
    .where(or_(d.is_online, e.plan_rev == NOT_HELD))
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

    async def list_left_to_resolve(self, limit: int) -> Sequence[OfflineScheduleEdge]:
        return await self._list(LEFT_EDGE, LIST_LEFT_TO_RESOLVE, at_limit=limit)

    async def set_plan_held(self, edges: Sequence[OfflineScheduleEdge], holds: bool) -> None:
        await self._session.execute_many(SET_PLAN_HELD, [_key(edge) | {"at_holds": holds} for edge in edges])

    async def set_resolve_time(self, edges: Sequence[OfflineScheduleEdge], resolve_ms: int) -> None:
        await self._session.execute_many(SET_RESOLVE_TIME, [_key(edge) | {"at_resolve": resolve_ms} for edge in edges])

    async def take_left(self, edges: Sequence[OfflineScheduleEdge]) -> Sequence[OfflineScheduleEdge]:
        return [edge for edge in edges if await self._session.write(TAKE_LEFT, **_key(edge))]


_COMMAND_CONVERTER = (
    lambda one: to_json([one.command, one.params, one.channel]),
    lambda text: ScheduledCommand(*from_json(text)),
)

SCHEDULE = RowMapper(
    schedules,
    Schedule,
    {
        "status": enum_converter(ScheduleStatus),
        "on_command": _COMMAND_CONVERTER,
        "off_command": _COMMAND_CONVERTER,
        "misfire": enum_converter(MisfirePolicy),
        "next_edge": enum_converter(SwitchEdge),
        "last_outcome": enum_converter(EdgeOutcome),
    },
    computed={"seq": schedules.c.seq},
)
FIRED_EDGE = RowMapper(
    schedule_edges, DecidedScheduleEdge, {"edge": enum_converter(SwitchEdge), "outcome": enum_converter(EdgeOutcome)}
)

s = schedules.c
_DEVICE = s.device_id == bindparam("at_device")
_LIMIT: BindParameter[int] = bindparam("at_limit")
_ORDER = (s.next_fire_ts, s.seq)

SCHEDULES = EntityStatements(
    SCHEDULE,
    "schedule_id",
    unchanged=("account_id", "device_id", "device_no", "created_ms"),
    exists_error=lambda _: slot_taken_error(),
)
GET_IN_SLOT = SCHEDULE.select().where(_DEVICE, LIVE, s.slot == bindparam("at_slot"))
GET_IN_SLOT_FOR_UPDATE = GET_IN_SLOT.with_for_update()
LIST_ACTIVE = SCHEDULE.select().where(_DEVICE, LIVE).order_by(s.slot)
LIST_ACTIVE_BY_DEVICES = SCHEDULE.select().where(s.device_id.in_(listed()), LIVE).order_by(s.device_id, s.slot)
LIST_BY_IDS = SCHEDULE.select().where(s.schedule_id.in_(listed()))
LOCK_BY_IDS = LIST_BY_IDS.with_for_update()
LIST_ACTIVE_BY_ACCOUNT = (
    SCHEDULE.select()
    .where(s.device_id.in_(select(devices.c.device_id).where(devices.c.account_id == bindparam("at_account"))), LIVE)
    .order_by(s.device_id, s.slot)
)
"""By the devices of the account: both tables then use their indexes."""
LIST_HISTORY = SCHEDULE.select().where(_DEVICE, ENDED).order_by(s.updated_ms.desc(), s.seq.desc()).limit(_LIMIT)
LIST_HISTORY_BEHIND = LIST_HISTORY.where(behind(s.updated_ms, s.seq, descending=True))
_IS_HELD_NO_MORE = or_(s.rrule.is_not(None), s.next_fire_ts > bindparam("at_once_after", type_=s.next_fire_ts.type))
LIST_DUE = {
    dialect: (
        SCHEDULE.select().where(waiting, s.next_fire_ts <= bindparam("at_now"), _IS_HELD_NO_MORE).order_by(*_ORDER).limit(_LIMIT)
    )
    for dialect, waiting in ((SQLITE, WAITING_SQLITE), (POSTGRES, WAITING_POSTGRES))
}
LIST_DUE_FOR_UPDATE = LIST_DUE[POSTGRES].with_for_update(skip_locked=True)
NEXT_DUE = {
    dialect: select(func.min(s.next_fire_ts)).where(waiting)
    for dialect, waiting in ((SQLITE, WAITING_SQLITE), (POSTGRES, WAITING_POSTGRES))
}
NEXT_DUE_NOT_HELD = {dialect: statement.where(_IS_HELD_NO_MORE) for dialect, statement in NEXT_DUE.items()}
"""Apart, because the other one is a single seek of an index."""
LIST_DECIDED_AFTER = (
    SCHEDULE.select()
    .where(or_(LIVE, s.status == ScheduleStatus.COMPLETED.value), s.rrule.is_not(None), s.updated_ms > bindparam("at_after"))
    .order_by(s.seq)
    .limit(_LIMIT)
)
LIST_DECIDED_AFTER_FOR_UPDATE = LIST_DECIDED_AFTER.with_for_update(skip_locked=True)
_f = schedule_edges.c
FORGET_SKIPPED_EDGES = delete(schedule_edges).where(
    _f.schedule_id.in_(listed()),
    _f.due_ts >= bindparam("at_from"),
    or_(*(_f.outcome == skipped.value for skipped in sorted(SKIPPED_OUTCOMES))),
)
LIST_DECIDED_EDGES = select(_f.schedule_id, _f.revision, _f.edge, _f.due_ts).where(
    _f.schedule_id.in_(listed()), _f.due_ts >= bindparam("at_from")
)
SET_WITHDRAWN = (
    update(schedules).where(s.schedule_id.in_(listed())).values(withdrawn=bindparam("at_withdrawn", type_=s.withdrawn.type))
)
ADD_EDGES = bulk_insert(schedule_edges, FIRED_EDGE.names)
_edge_values = attrgetter(*FIRED_EDGE.names)
_FIRING_COLUMNS = ("status", "next_fire_ts", "next_edge", "last_fired_ms", "last_outcome", "updated_ms")
"""Columns that firing changes."""
SAVE_FIRED = bulk_update(schedules, "schedule_id", _FIRING_COLUMNS)
_fired_values = attrgetter("schedule_id", *_FIRING_COLUMNS)
SET_OUTCOME = (
    update(schedule_edges)
    .where(
        schedule_edges.c.schedule_id == bindparam("at_schedule"),
        schedule_edges.c.revision == bindparam("at_revision"),
        schedule_edges.c.edge == bindparam("at_edge"),
        schedule_edges.c.due_ts == bindparam("at_due"),
    )
    .values(outcome=bindparam("outcome"), at_ms=bindparam("at_ms"))
)
DELETE_OLDER_THAN = delete_batch(schedules, text(ENDED.text) & (s.updated_ms < bindparam("at_before")), s.updated_ms)


class SqlScheduleRepository(SqlStoredEntityRepository[Schedule], SqlOfflineScheduleEdgeMixin):
    statements = SCHEDULES

    async def get_by_slot(self, device_id: DeviceId, slot: int) -> Schedule | None:
        statement = GET_IN_SLOT_FOR_UPDATE if self._takes_locks else GET_IN_SLOT
        return await self._first(SCHEDULE, statement, at_device=device_id, at_slot=slot)

    async def list_active(self, device_id: DeviceId) -> Sequence[Schedule]:
        return await self._list(SCHEDULE, LIST_ACTIVE, at_device=device_id)

    async def list_active_by_devices(self, device_ids: Collection[DeviceId]) -> Sequence[Schedule]:
        if not device_ids:
            return []
        return await self._list(SCHEDULE, LIST_ACTIVE_BY_DEVICES, at_listed=to_json(sorted(device_ids)))

    async def list_active_by_account(self, account_id: AccountId) -> Sequence[Schedule]:
        return await self._list(SCHEDULE, LIST_ACTIVE_BY_ACCOUNT, at_account=account_id)

    async def list_history(
        self, device_id: DeviceId, limit: int, after: Position | None = None, ended: TimeSpan = ANY_TIME
    ) -> Sequence[Schedule]:
        start, rest = page_start(after, ended)
        statement, span = during(LIST_HISTORY if start is None else LIST_HISTORY_BEHIND, s.updated_ms, rest)
        params = position_parameters(start or ()) | span
        return await self._list(SCHEDULE, statement, at_device=device_id, at_limit=limit, **params)

    async def list_due(self, now_ts: int, limit: int, once_after_ts: int = 0) -> Sequence[Schedule]:
        statement = LIST_DUE_FOR_UPDATE if self._takes_locks else LIST_DUE[self._session.dialect]
        return await self._list(SCHEDULE, statement, at_now=now_ts, at_limit=limit, at_once_after=once_after_ts)

    async def next_due_ts(self, once_after_ts: int = 0) -> int | None:
        if once_after_ts == 0:
            return await self._number_or_none(NEXT_DUE[self._session.dialect])
        return await self._number_or_none(NEXT_DUE_NOT_HELD[self._session.dialect], at_once_after=once_after_ts)

    async def list_decided_after(self, at_ms: int, limit: int) -> Sequence[Schedule]:
        statement = LIST_DECIDED_AFTER_FOR_UPDATE if self._takes_locks else LIST_DECIDED_AFTER
        return await self._list(SCHEDULE, statement, at_after=at_ms, at_limit=limit)

    async def forget_skipped_edges(self, schedule_ids: Collection[ScheduleId], from_ts: int) -> None:
        await self._session.write(FORGET_SKIPPED_EDGES, at_listed=to_json(sorted(schedule_ids)), at_from=from_ts)

    async def list_decided_edges(
        self, schedule_ids: Collection[ScheduleId], from_ts: int
    ) -> Sequence[tuple[ScheduleId, int, SwitchEdge, int]]:
        rows = await self._session.read(LIST_DECIDED_EDGES, at_listed=to_json(sorted(schedule_ids)), at_from=from_ts)
        return [(schedule_id, revision, SwitchEdge(edge), due_ts) for schedule_id, revision, edge, due_ts in rows]

    async def save_decisions(self, schedules: Sequence[Schedule], edges: Sequence[DecidedScheduleEdge]) -> None:
        saved, added = list(map(_fired_values, schedules)), list(map(_edge_values, edges))
        with unique_violation_as(edge_recorded_error):
            await self._session.bulk_write_all([(SAVE_FIRED, saved), (ADD_EDGES, added)])

    async def set_withdrawn(self, schedule_ids: Collection[ScheduleId], withdrawn: bool) -> None:
        await self._session.write(SET_WITHDRAWN, at_listed=to_json(sorted(schedule_ids)), at_withdrawn=withdrawn)

    async def list_by_ids(self, schedule_ids: Collection[ScheduleId]) -> Sequence[Schedule]:
        statement = LOCK_BY_IDS if self._takes_locks else LIST_BY_IDS
        return await self._list(SCHEDULE, statement, at_listed=to_json(sorted(schedule_ids)))

    async def save_resolved(self, schedule: Schedule, edge: DecidedScheduleEdge) -> None:
        await self._session.bulk_write(SAVE_FIRED, [_fired_values(schedule)])
        key = {"at_schedule": edge.schedule_id, "at_revision": edge.revision, "at_edge": edge.edge.value, "at_due": edge.due_ts}
        await self._session.execute_many(SET_OUTCOME, [key | {"outcome": edge.outcome.value, "at_ms": edge.at_ms}])

    async def delete_older_than(self, updated_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_OLDER_THAN, at_before=updated_ms, at_limit=limit)
