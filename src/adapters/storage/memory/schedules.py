"""Schedules and the edges that fired."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from adapters.storage import refusals
from adapters.storage.memory.shelves import Book, Shelf
from domain.kernel.ids import DeviceId, ScheduleId
from domain.schedules.model import Edge, FiredEdge, Schedule, ScheduleStatus

SCHEDULES: Shelf[ScheduleId, Schedule] = Shelf("schedules")
EDGES: Shelf[tuple[ScheduleId, int, Edge, int], FiredEdge] = Shelf("schedule_edges")

_LIVE = (ScheduleStatus.PENDING, ScheduleStatus.ACTIVE)


class MemorySchedules:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, schedule: Schedule) -> None:
        self._refuse_taken(schedule)
        self._book.edit(SCHEDULES)[schedule.schedule_id] = schedule

    async def save(self, schedule: Schedule) -> None:
        if schedule.schedule_id in self._book.rows(SCHEDULES):
            self._refuse_taken(schedule)
            self._book.edit(SCHEDULES)[schedule.schedule_id] = schedule

    async def in_slot(self, device_id: DeviceId, slot: int) -> Schedule | None:
        return next((schedule for schedule in await self.active(device_id) if schedule.slot == slot), None)

    async def active(self, device_id: DeviceId) -> Sequence[Schedule]:
        return sorted((s for s in self._live() if s.device_id == device_id), key=lambda schedule: schedule.slot)

    async def active_of(self, device_ids: Collection[DeviceId]) -> Sequence[Schedule]:
        found = [schedule for schedule in self._live() if schedule.device_id in device_ids]
        return sorted(found, key=lambda schedule: schedule.slot)

    async def history(self, device_id: DeviceId, limit: int) -> Sequence[Schedule]:
        rows = reversed(list(self._book.rows(SCHEDULES).values()))
        ended = [s for s in rows if s.device_id == device_id and s.status not in _LIVE]
        return sorted(ended, key=lambda schedule: -schedule.updated_ms)[:limit]

    async def due(self, now_ts: int, limit: int) -> Sequence[Schedule]:
        due = [(s.next_fire_ts, s) for s in self._waiting() if s.next_fire_ts is not None and s.next_fire_ts <= now_ts]
        return [schedule for _, schedule in sorted(due, key=lambda pair: pair[0])][:limit]

    async def next_due_ts(self) -> int | None:
        return min((s.next_fire_ts for s in self._waiting() if s.next_fire_ts is not None), default=None)

    async def decide_all(self, schedules: Sequence[Schedule], edges: Sequence[FiredEdge]) -> None:
        for schedule in schedules:
            await self.save(schedule)
        for edge in edges:
            if not await self.record_edge(edge):
                raise refusals.edge_recorded()

    async def record_edge(self, fired: FiredEdge) -> bool:
        key = (fired.schedule_id, fired.revision, fired.edge, fired.due_ts)
        edges = self._book.edit(EDGES)
        if key in edges:
            return False
        edges[key] = fired
        return True

    async def forget_before(self, updated_ms: int, limit: int) -> int:
        rows = self._book.edit(SCHEDULES)
        old = [s.schedule_id for s in rows.values() if s.status not in _LIVE and s.updated_ms < updated_ms][:limit]
        for schedule_id in old:
            drop_schedule(self._book, schedule_id)
        return len(old)

    def _live(self) -> list[Schedule]:
        return [schedule for schedule in self._book.rows(SCHEDULES).values() if schedule.status in _LIVE]

    def _waiting(self) -> list[Schedule]:
        return [schedule for schedule in self._live() if schedule.enabled]

    def _refuse_taken(self, schedule: Schedule) -> None:
        if schedule.status not in _LIVE:
            return
        for other in self._live():
            same_slot = (other.device_id, other.slot) == (schedule.device_id, schedule.slot)
            if same_slot and other.schedule_id != schedule.schedule_id:
                raise refusals.slot_taken()


def drop_schedule(book: Book, schedule_id: ScheduleId) -> None:
    book.drop(EDGES, [key for key in book.rows(EDGES) if key[0] == schedule_id])
    book.drop(SCHEDULES, [schedule_id])
