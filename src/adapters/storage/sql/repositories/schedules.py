"""Schedules, and the edges that fired: the edge's key is unique, so nothing fires twice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter

from sqlalchemy import BindParameter, bindparam, func, insert, select, text, update

from adapters.storage import refusals
from adapters.storage.sql.pouring import inserting, updating
from adapters.storage.sql.repositories.sessions import forgetting
from adapters.storage.sql.rows import Mapper, from_json, ignoring, listed, to_json, word
from adapters.storage.sql.session import POSTGRES, SQLITE, Session, Taken
from adapters.storage.sql.tables import schedule_edges, schedules
from adapters.storage.sql.tables.fleet import ENDED, LIVE, WAITING_POSTGRES, WAITING_SQLITE
from domain.kernel.ids import DeviceId
from domain.schedules.model import Edge, FiredEdge, Misfire, Outcome, Schedule, ScheduleStatus, SlotCommand


def _command(stored: str) -> SlotCommand:
    return SlotCommand(*from_json(stored))


_COMMAND = (lambda slot: to_json([slot.command, slot.params]), _command)

SCHEDULE = Mapper(
    schedules,
    Schedule,
    {
        "status": word(ScheduleStatus),
        "on_command": _COMMAND,
        "off_command": _COMMAND,
        "misfire": word(Misfire),
        "next_edge": word(Edge),
        "last_outcome": word(Outcome),
    },
)
FIRED = Mapper(schedule_edges, FiredEdge, {"edge": word(Edge), "outcome": word(Outcome)})

s = schedules.c
_DEVICE = s.device_id == bindparam("at_device")
_LIMIT: BindParameter[int] = bindparam("at_limit")
_ORDER = (s.next_fire_ts, s.seq)

ADD = insert(schedules)
SAVE = update(schedules).where(s.schedule_id == bindparam("at_id"))
IN_SLOT = SCHEDULE.select().where(_DEVICE, LIVE, s.slot == bindparam("at_slot"))
IN_SLOT_LOCKED = IN_SLOT.with_for_update()
ACTIVE = SCHEDULE.select().where(_DEVICE, LIVE).order_by(s.slot)
ACTIVE_OF = {
    dialect: SCHEDULE.select().where(s.device_id.in_(among), LIVE).order_by(s.device_id, s.slot)
    for dialect, among in listed().items()
}
HISTORY = SCHEDULE.select().where(_DEVICE, ENDED).order_by(s.updated_ms.desc(), s.seq.desc()).limit(_LIMIT)
DUE = {
    dialect: SCHEDULE.select().where(waiting, s.next_fire_ts <= bindparam("at_now")).order_by(*_ORDER).limit(_LIMIT)
    for dialect, waiting in ((SQLITE, WAITING_SQLITE), (POSTGRES, WAITING_POSTGRES))
}
DUE_LOCKED = DUE[POSTGRES].with_for_update(skip_locked=True)
NEXT_DUE = {
    dialect: select(func.min(s.next_fire_ts)).where(waiting)
    for dialect, waiting in ((SQLITE, WAITING_SQLITE), (POSTGRES, WAITING_POSTGRES))
}
RECORD_ALL = inserting(schedule_edges, FIRED.names)
_edge_row = attrgetter(*FIRED.names)
_DECIDED = ("status", "next_fire_ts", "next_edge", "last_fired_ms", "last_outcome", "updated_ms")
"""What firing changes."""
DECIDE_ALL = updating(schedules, "schedule_id", _DECIDED)
_decided_row = attrgetter("schedule_id", *_DECIDED)
RECORD = ignoring(schedule_edges)
FORGET = forgetting(schedules, text(ENDED.text) & (s.updated_ms < bindparam("at_before")), s.updated_ms)


class SqlSchedules:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, schedule: Schedule) -> None:
        try:
            await self._session.write(ADD, **SCHEDULE.values(schedule))
        except Taken:
            raise refusals.slot_taken() from None

    async def save(self, schedule: Schedule) -> None:
        values = SCHEDULE.values(schedule, "schedule_id", "account_id", "device_id", "device_no", "created_ms")
        try:
            await self._session.write(SAVE, at_id=schedule.schedule_id, **values)
        except Taken:
            raise refusals.slot_taken() from None

    async def in_slot(self, device_id: DeviceId, slot: int) -> Schedule | None:
        if self._session.dialect == POSTGRES and self._session.writable:
            return SCHEDULE.maybe(await self._session.write(IN_SLOT_LOCKED, at_device=device_id, at_slot=slot))
        return SCHEDULE.maybe(await self._session.read(IN_SLOT, at_device=device_id, at_slot=slot))

    async def active(self, device_id: DeviceId) -> Sequence[Schedule]:
        return [SCHEDULE.of(row) for row in await self._session.read(ACTIVE, at_device=device_id)]

    async def active_of(self, device_ids: Collection[DeviceId]) -> Sequence[Schedule]:
        if not device_ids:
            return []
        rows = await self._session.read(ACTIVE_OF[self._session.dialect], at_listed=to_json(sorted(device_ids)))
        return [SCHEDULE.of(row) for row in rows]

    async def history(self, device_id: DeviceId, limit: int) -> Sequence[Schedule]:
        rows = await self._session.read(HISTORY, at_device=device_id, at_limit=limit)
        return [SCHEDULE.of(row) for row in rows]

    async def due(self, now_ts: int, limit: int) -> Sequence[Schedule]:
        if self._session.dialect == POSTGRES and self._session.writable:
            rows = await self._session.write(DUE_LOCKED, at_now=now_ts, at_limit=limit)
        else:
            rows = await self._session.read(DUE[self._session.dialect], at_now=now_ts, at_limit=limit)
        return [SCHEDULE.of(row) for row in rows]

    async def next_due_ts(self) -> int | None:
        found: int | None = (await self._session.read(NEXT_DUE[self._session.dialect]))[0][0]
        return found

    async def decide_all(self, schedules: Sequence[Schedule], edges: Sequence[FiredEdge]) -> None:
        try:
            await self._session.pour(DECIDE_ALL, list(map(_decided_row, schedules)))
            await self._session.pour(RECORD_ALL, list(map(_edge_row, edges)))
        except Taken:
            raise refusals.edge_recorded() from None

    async def record_edge(self, fired: FiredEdge) -> bool:
        return bool(await self._session.write(RECORD[self._session.dialect], **FIRED.values(fired)))

    async def forget_before(self, updated_ms: int, limit: int) -> int:
        return len(await self._session.write(FORGET, at_before=updated_ms, at_limit=limit))
