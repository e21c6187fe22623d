"""Schedules and the edges that fired."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from adapters.storage.errors import edge_recorded_error, slot_taken_error
from domain.devices.model import Device
from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.ids import AccountId, DeviceId, ScheduleId
from domain.schedules.model import (
    SKIPPED_OUTCOMES,
    DecidedScheduleEdge,
    OfflineScheduleEdge,
    Schedule,
    ScheduleStatus,
    SwitchEdge,
)
from support.memory_storage.tables import Database, Table

SCHEDULES: Table[ScheduleId, Schedule] = Table("schedules")
FIRED_EDGES: Table[tuple[ScheduleId, int, SwitchEdge, int], DecidedScheduleEdge] = Table("schedule_edges")

_DEVICES: Table[DeviceId, Device] = Table("devices")  # of `devices.py`, which imports this module
LEFT_EDGES: Table[tuple[ScheduleId, int, SwitchEdge, int], OfflineScheduleEdge] = Table("left_edges")

_LIVE = (ScheduleStatus.PENDING, ScheduleStatus.ACTIVE)


class MemoryScheduleRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, schedule: Schedule) -> None:
        self._require_free_slot(schedule)
        placed = replace(schedule, seq=self._database.next_value("schedule_seq"))
        self._database.writable_rows(SCHEDULES)[schedule.schedule_id] = placed

    async def save(self, schedule: Schedule) -> None:
        stored = self._database.rows(SCHEDULES).get(schedule.schedule_id)
        if stored is not None:
            self._require_free_slot(schedule)
            self._database.writable_rows(SCHEDULES)[schedule.schedule_id] = replace(schedule, seq=stored.seq)

    async def get_by_slot(self, device_id: DeviceId, slot: int) -> Schedule | None:
        return next((schedule for schedule in await self.list_active(device_id) if schedule.slot == slot), None)

    async def list_active(self, device_id: DeviceId) -> Sequence[Schedule]:
        return sorted((s for s in self._live() if s.device_id == device_id), key=lambda schedule: schedule.slot)

    async def list_active_by_devices(self, device_ids: Collection[DeviceId]) -> Sequence[Schedule]:
        found = [schedule for schedule in self._live() if schedule.device_id in device_ids]
        return sorted(found, key=lambda schedule: schedule.slot)

    async def list_active_by_account(self, account_id: AccountId) -> Sequence[Schedule]:
        found = [schedule for schedule in self._live() if schedule.account_id == account_id]
        return sorted(found, key=lambda schedule: (schedule.device_id, schedule.slot))

    async def list_history(
        self, device_id: DeviceId, limit: int, after: Position | None = None, ended: TimeSpan = ANY_TIME
    ) -> Sequence[Schedule]:
        rows = reversed(list(self._database.rows(SCHEDULES).values()))
        found = [s for s in rows if s.device_id == device_id and s.status not in _LIVE and ended.contains(s.updated_ms)]
        found.sort(key=lambda schedule: (schedule.updated_ms, schedule.seq), reverse=True)
        return [s for s in found if after is None or (s.updated_ms, s.seq) < after][:limit]

    async def list_due(self, now_ts: int, limit: int, once_after_ts: int = 0) -> Sequence[Schedule]:
        due = [(at_ts, s) for at_ts, s in self._waiting(once_after_ts) if at_ts <= now_ts]
        return [schedule for _, schedule in sorted(due, key=lambda pair: pair[0])][:limit]

    async def next_due_ts(self, once_after_ts: int = 0) -> int | None:
        return min((at_ts for at_ts, _ in self._waiting(once_after_ts)), default=None)

    def _waiting(self, once_after_ts: int) -> Sequence[tuple[int, Schedule]]:
        found = [(s.next_fire_ts, s) for s in self._enabled() if s.next_fire_ts is not None]
        return [(at_ts, s) for at_ts, s in found if s.rrule is not None or at_ts > once_after_ts]

    async def list_decided_after(self, at_ms: int, limit: int) -> Sequence[Schedule]:
        rows = self._database.rows(SCHEDULES).values()
        statuses = (ScheduleStatus.PENDING, ScheduleStatus.ACTIVE, ScheduleStatus.COMPLETED)
        return [s for s in rows if s.status in statuses and s.rrule is not None and s.updated_ms > at_ms][:limit]

    async def forget_skipped_edges(self, schedule_ids: Collection[ScheduleId], from_ts: int) -> None:
        rows = self._database.writable_rows(FIRED_EDGES)
        for key, edge in list(rows.items()):
            if edge.schedule_id in schedule_ids and edge.due_ts >= from_ts and edge.outcome in SKIPPED_OUTCOMES:
                del rows[key]

    async def list_decided_edges(
        self, schedule_ids: Collection[ScheduleId], from_ts: int
    ) -> Sequence[tuple[ScheduleId, int, SwitchEdge, int]]:
        return [key for key in self._database.rows(FIRED_EDGES) if key[0] in schedule_ids and key[3] >= from_ts]

    async def save_decisions(self, schedules: Sequence[Schedule], edges: Sequence[DecidedScheduleEdge]) -> None:
        for schedule in schedules:
            await self.save(schedule)
        for edge in edges:
            key = (edge.schedule_id, edge.revision, edge.edge, edge.due_ts)
            rows = self._database.writable_rows(FIRED_EDGES)
            if key in rows:
                raise edge_recorded_error()
            rows[key] = edge

    async def set_withdrawn(self, schedule_ids: Collection[ScheduleId], withdrawn: bool) -> None:
        rows = self._database.writable_rows(SCHEDULES)
        for schedule_id in schedule_ids:
            if schedule_id in rows:
                rows[schedule_id] = replace(rows[schedule_id], withdrawn=withdrawn)

    async def list_by_ids(self, schedule_ids: Collection[ScheduleId]) -> Sequence[Schedule]:
        return [schedule for key, schedule in self._database.rows(SCHEDULES).items() if key in schedule_ids]

    async def add_left(self, edges: Sequence[OfflineScheduleEdge]) -> None:
        for edge in edges:
            self._database.writable_rows(LEFT_EDGES)[_left_key(edge)] = edge
            self._mark(edge.device_id, True)

    async def list_left_by_devices(self, device_ids: Collection[DeviceId]) -> Sequence[OfflineScheduleEdge]:
        return [edge for edge in self._database.rows(LEFT_EDGES).values() if edge.device_id in device_ids]

    async def list_left_to_resolve(self, limit: int) -> Sequence[OfflineScheduleEdge]:
        rows = self._database.rows(_DEVICES)
        found = [edge for edge in self._database.rows(LEFT_EDGES).values() if rows[edge.device_id].is_online or not edge.is_held]
        return sorted(found, key=lambda edge: edge.resolve_ms or 0)[:limit]

    async def set_plan_held(self, edges: Sequence[OfflineScheduleEdge], holds: bool) -> None:
        for edge in edges:
            rows = self._database.writable_rows(LEFT_EDGES)
            rows[_left_key(edge)] = replace(rows[_left_key(edge)], holds_plan=holds)

    async def set_resolve_time(self, edges: Sequence[OfflineScheduleEdge], resolve_ms: int) -> None:
        for edge in edges:
            rows = self._database.writable_rows(LEFT_EDGES)
            rows[_left_key(edge)] = replace(rows[_left_key(edge)], resolve_ms=resolve_ms)

    async def take_left(self, edges: Sequence[OfflineScheduleEdge]) -> Sequence[OfflineScheduleEdge]:
        taken = [edge for edge in edges if self._database.delete(LEFT_EDGES, [_left_key(edge)])]
        for device_id in {edge.device_id for edge in taken}:
            self._mark(device_id, bool(await self.list_left_by_devices([device_id])))
        return taken

    async def save_resolved(self, schedule: Schedule, edge: DecidedScheduleEdge) -> None:
        await self.save(schedule)
        self._database.writable_rows(FIRED_EDGES)[edge.schedule_id, edge.revision, edge.edge, edge.due_ts] = edge

    def _mark(self, device_id: DeviceId, has_left_edges: bool) -> None:
        rows = self._database.writable_rows(_DEVICES)
        if device_id in rows:
            rows[device_id] = replace(rows[device_id], has_left_edges=has_left_edges)

    async def delete_older_than(self, updated_ms: int, limit: int) -> int:
        rows = self._database.writable_rows(SCHEDULES)
        old = [s.schedule_id for s in rows.values() if s.status not in _LIVE and s.updated_ms < updated_ms][:limit]
        for schedule_id in old:
            delete_schedule(self._database, schedule_id)
        return len(old)

    def _live(self) -> list[Schedule]:
        return [schedule for schedule in self._database.rows(SCHEDULES).values() if schedule.status in _LIVE]

    def _enabled(self) -> list[Schedule]:
        return [schedule for schedule in self._live() if schedule.enabled]

    def _require_free_slot(self, schedule: Schedule) -> None:
        if schedule.status not in _LIVE:
            return
        for other in self._live():
            same_slot = (other.device_id, other.slot) == (schedule.device_id, schedule.slot)
            if same_slot and other.schedule_id != schedule.schedule_id:
                raise slot_taken_error()


def _left_key(edge: OfflineScheduleEdge) -> tuple[ScheduleId, int, SwitchEdge, int]:
    return edge.schedule_id, edge.revision, edge.edge, edge.due_ts


def delete_schedule(database: Database, schedule_id: ScheduleId) -> None:
    database.delete(FIRED_EDGES, [key for key in database.rows(FIRED_EDGES) if key[0] == schedule_id])
    database.delete(LEFT_EDGES, [key for key in database.rows(LEFT_EDGES) if key[0] == schedule_id])
    database.delete(SCHEDULES, [schedule_id])
