"""The log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from adapters.storage.memory.shelves import Book, Shelf
from domain.events.model import Event
from domain.kernel.ids import AccountId, DeviceId

EVENTS: Shelf[int, Event] = Shelf("events")


class MemoryEvents:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def append(self, event: Event) -> Event:
        stored = replace(event, position=self._book.next("position"))
        self._book.edit(EVENTS)[stored.position] = stored
        return stored

    async def append_all(self, events: Sequence[Event]) -> Sequence[Event]:
        return [await self.append(event) for event in events]

    async def page(
        self,
        account_id: AccountId,
        *,
        limit: int,
        before: int | None = None,
        kind: str | None = None,
        device_id: DeviceId | None = None,
    ) -> Sequence[Event]:
        chosen = self._chosen(lambda event: _matches(event, account_id, kind, device_id))
        return [event for event in reversed(chosen) if before is None or event.position < before][:limit]

    async def since(self, account_id: AccountId, after: int, limit: int) -> Sequence[Event]:
        return self._chosen(lambda e: e.account_id == account_id and e.is_public and e.position > after)[:limit]

    async def following(self, after: int, limit: int) -> Sequence[Event]:
        return self._chosen(lambda event: event.position > after)[:limit]

    async def last(self) -> int:
        return max((event.position for event in self._chosen(lambda _: True)), default=0)

    async def total(self, account_id: AccountId, *, kind: str | None = None, device_id: DeviceId | None = None) -> int:
        return len(self._chosen(lambda event: _matches(event, account_id, kind, device_id)))

    async def newest(self, account_id: AccountId) -> int:
        return max((e.position for e in self._chosen(lambda e: e.account_id == account_id)), default=0)

    async def oldest(self, account_id: AccountId) -> int:
        return min((e.position for e in self._chosen(lambda e: e.account_id == account_id)), default=0)

    async def before_time(self, device_id: DeviceId, *, limit: int, before_ms: int | None) -> Sequence[Event]:
        chosen = self._chosen(lambda e: e.device_id == device_id and (before_ms is None or e.at_ms < before_ms))
        return sorted(chosen, key=lambda event: (-event.at_ms, -event.position))[:limit]

    async def forget_before(self, at_ms: int, limit: int) -> int:
        old = [event.position for event in self._chosen(lambda event: event.at_ms < at_ms)]
        return self._book.drop(EVENTS, old[:limit])

    def _chosen(self, chosen: Callable[[Event], bool]) -> list[Event]:
        return [event for event in self._book.rows(EVENTS).values() if chosen(event)]


def _matches(event: Event, account_id: AccountId, kind: str | None, device_id: DeviceId | None) -> bool:
    return event.account_id == account_id and kind in (None, event.kind) and device_id in (None, event.device_id)
