"""The event log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domain.events.cursors import EventLogCursor
from domain.events.hash_chain import ChainHasher, EventChainHead, chain_events, heads_after
from domain.events.model import NO_SEARCH, Event, EventSearch
from domain.kernel.folding import fold
from domain.kernel.ids import AccountId, DeviceId, EventId
from support.memory_storage.audit_seals import ROUNDS, purge_seals
from support.memory_storage.tables import Database, Table

EVENTS: Table[int, Event] = Table("events")
LINKS: Table[int, tuple[int, str]] = Table("event_links")
"""Position → sequence and hash."""
HEADS: Table[AccountId, EventChainHead] = Table("event_heads")


class MemoryEventRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def append_many(self, events: Sequence[Event], hasher: ChainHasher = chain_events) -> Sequence[Event]:
        stored = [replace(event, position=self._database.next_value("position")) for event in events]
        places = hasher(stored, self._database.rows(HEADS))
        self._database.writable_rows(EVENTS).update((event.position, event) for event in stored)
        self._database.writable_rows(LINKS).update(zip((event.position for event in stored), places, strict=True))
        self._database.writable_rows(HEADS).update(heads_after(stored, places))
        return stored

    async def get(self, account_id: AccountId, event_id: EventId) -> Event | None:
        return next(iter(self._filter(lambda event: (event.account_id, event.event_id) == (account_id, event_id))), None)

    async def page(
        self,
        account_id: AccountId,
        *,
        limit: int,
        before: int | None = None,
        kind: str | None = None,
        device_id: DeviceId | None = None,
        search: EventSearch = NO_SEARCH,
    ) -> Sequence[Event]:
        chosen = self._filter(lambda event: _matches(event, account_id, kind, device_id) and _found(event, search))
        return [event for event in reversed(chosen) if before is None or event.position < before][:limit]

    async def list_public_after(self, account_id: AccountId, after: EventLogCursor, limit: int) -> Sequence[Event]:
        return self._filter(lambda e: e.account_id == account_id and e.is_public and not after.covers(0, e.position))[:limit]

    async def list_after(self, after: EventLogCursor, limit: int) -> Sequence[Event]:
        return self._filter(lambda event: not after.covers(0, event.position))[:limit]

    async def list_kinds_after(self, after: EventLogCursor, limit: int) -> Sequence[str]:
        return [event.kind for event in await self.list_after(after, limit)]

    async def end(self) -> EventLogCursor:
        return EventLogCursor(max((event.position for event in self._filter(lambda _: True)), default=0))

    async def advance_idle_writers(self) -> None: ...

    async def count(self, account_id: AccountId, *, kind: str | None = None, device_id: DeviceId | None = None) -> int:
        return len(self._filter(lambda event: _matches(event, account_id, kind, device_id)))

    async def oldest_position(self) -> int:
        return min((event.position for event in self._filter(lambda _: True)), default=0)

    async def list_by_device(self, device_id: DeviceId, *, limit: int, before: tuple[int, int] | None) -> Sequence[Event]:
        chosen = self._filter(lambda e: e.device_id == device_id and (before is None or (e.at_ms, e.position) < before))
        return sorted(chosen, key=lambda event: (-event.at_ms, -event.position))[:limit]

    async def delete_older_than(self, at_ms: int, limit: int) -> int:
        rounds = [log for sealed_ms, log in self._database.rows(ROUNDS).items() if sealed_ms < at_ms]
        if not rounds:
            return 0
        purge_seals(self._database, max(ms for ms in self._database.rows(ROUNDS) if ms < at_ms))
        covered = [event.position for event in self._filter(lambda event: rounds[-1].covers(0, event.position))]
        self._database.delete(LINKS, covered[:limit])
        return self._database.delete(EVENTS, covered[:limit])

    def _filter(self, chosen: Callable[[Event], bool]) -> list[Event]:
        return [event for event in self._database.rows(EVENTS).values() if chosen(event)]


def _matches(event: Event, account_id: AccountId, kind: str | None, device_id: DeviceId | None) -> bool:
    return event.account_id == account_id and kind in (None, event.kind) and device_id in (None, event.device_id)


def _found(event: Event, search: EventSearch) -> bool:
    text = fold(f"{event.description} {event.device_name or ''}")
    return (
        (search.since_ms is None or event.at_ms >= search.since_ms)
        and (search.until_ms is None or event.at_ms < search.until_ms)
        and search.source in (None, event.source)
        and (search.text is None or fold(search.text) in text)
    )
