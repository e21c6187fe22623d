"""Cursors of the event log and of the live feed: which events have been read, although transactions commit in another order than
their positions.

Transactions that write to the log run side by side. Each has a writer number of its own while it lasts, and the transactions of
one writer number follow each other. So the positions of one writer appear in their order, and those of different writers do not:
a reader may see position 9 of writer 1 before position 8 of writer 0 is committed. A cursor therefore holds one position per
writer, and a reader asks for the events that its cursor does not cover. Nothing is missed or read twice, and no writer that hangs
holds the readers up. Transactions with events of one device follow each other under all numbers (the storage sees to that), so of
one device a reader sees them in the order of their positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

from domain.kernel.cursors import EVENTS, FEED, Cursor, invalid_cursor

MAX_WRITERS = 32
"""Writer numbers are 0 to 31: so many transactions write to the log at the same time, and a cursor has no more entries."""


class EventLogPositioned(Protocol):
    @property
    def writer(self) -> int: ...

    @property
    def position(self) -> int: ...


@dataclass(frozen=True, slots=True)
class EventLogCursor:
    """`base` holds for every writer without an entry in `entries`, pairs of a writer and its last position that has been read.
    The entries are sorted by writer, and none equals `base`."""

    base: int = 0
    entries: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_positions(cls, positions: Mapping[int, int], base: int = 0) -> EventLogCursor:
        return cls(base, tuple(sorted((writer, position) for writer, position in positions.items() if position != base)))

    @classmethod
    def from_all_writers(cls, positions: Mapping[int, int]) -> EventLogCursor:
        """From the positions of all writers that exist; their most common position becomes the base, so the cursor is short."""
        if not positions:
            return cls()
        base, _ = max(Counter(positions.values()).items(), key=lambda item: (item[1], item[0]))
        return cls.from_positions(positions, base)

    def position_of(self, writer: int) -> int:
        for each, position in self.entries:
            if each == writer:
                return position
        return self.base

    def covers(self, writer: int, position: int) -> bool:
        return position <= self.position_of(writer)

    @property
    def lowest(self) -> int:
        """Every event up to this position has been read."""
        return min([self.base, *(position for _, position in self.entries)])

    @property
    def highest(self) -> int:
        """No event above this position has been read."""
        return max([self.base, *(position for _, position in self.entries)])

    def after(self, events: Iterable[EventLogPositioned]) -> EventLogCursor:
        """Once these events have been read too, and with them all earlier ones of their writers."""
        positions = dict(self.entries)
        for event in events:
            if event.position > positions.get(event.writer, self.base):
                positions[event.writer] = event.position
        return EventLogCursor.from_positions(positions, self.base)

    def union(self, other: EventLogCursor) -> EventLogCursor:
        """What either of the two covers."""
        if self == other:
            return self
        writers = {writer for writer, _ in (*self.entries, *other.entries)}
        return EventLogCursor.from_positions(
            {writer: max(self.position_of(writer), other.position_of(writer)) for writer in writers}, max(self.base, other.base)
        )


@dataclass(frozen=True, slots=True)
class FeedCursor:
    """The client has received what `log` covers, and every reading stored before `store_time_s` (Unix seconds, see
    `domain.telemetry.ports`). None: a cursor of the event log, which says nothing about readings.

    As text: the base of `log`, the store time, then a writer and its position for each entry of `log`. `life`: of the database
    whose positions these are."""

    log: EventLogCursor
    store_time_s: int | None
    life: str = ""

    def encode(self) -> str:
        position = (self.log.base, self.store_time_s or 0, *chain.from_iterable(self.log.entries))
        return Cursor(FEED, position, self.life).encode()

    @classmethod
    def decode(cls, text: str) -> FeedCursor:
        """Raises ValidationFailed."""
        cursor = Cursor.decode(text)
        numbers = [each for each in cursor.position if isinstance(each, int) and each >= 0]
        if len(numbers) != len(cursor.position):
            raise invalid_cursor()
        if cursor.kind == EVENTS and len(numbers) == 1:
            return cls(EventLogCursor(numbers[0]), None, cursor.life)
        if cursor.kind != FEED or len(numbers) < 2 or len(numbers) % 2:
            raise invalid_cursor()
        base, store_time_s, *entries = numbers
        positions = dict(zip(entries[::2], entries[1::2], strict=True))
        if any(writer >= MAX_WRITERS for writer in positions):
            raise invalid_cursor()
        return cls(EventLogCursor.from_positions(positions, base), store_time_s, cursor.life)

    def at(self, log: EventLogCursor) -> FeedCursor:
        return replace(self, log=log)
