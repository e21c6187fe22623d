"""The cursor of the live feed: what a client has received, in the event log and of the readings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

from domain.events.event_log_cursor import MAX_WRITERS, EventLogCursor
from domain.kernel.cursors import EVENTS, FEED, decode_cursor, encode_cursor, invalid_cursor
from domain.kernel.errors import ValidationFailed


@dataclass(frozen=True, slots=True)
class FeedCursor:
    """The client has received what `log` covers, and every reading stored before `store_time_s` (Unix seconds, see
    `domain.telemetry.reading_arrival_ports`). None: a cursor of the event log, which says nothing about readings.

    As text: the base of `log`, the store time, then a writer and its position for each entry of `log`."""

    log: EventLogCursor
    store_time_s: int | None

    def encode(self) -> str:
        return encode_cursor(FEED, self.log.base, self.store_time_s or 0, *chain.from_iterable(self.log.entries))

    @classmethod
    def decode(cls, text: str) -> FeedCursor:
        """Raises ValidationFailed."""
        try:
            base, store_time_s, *entries = decode_cursor(FEED, text, *range(2, 2 * MAX_WRITERS + 3, 2))
        except ValidationFailed:
            return cls(EventLogCursor(decode_cursor(EVENTS, text)[0]), None)
        positions = dict(zip(entries[::2], entries[1::2], strict=True))
        if any(writer >= MAX_WRITERS for writer in positions):
            raise invalid_cursor()
        return cls(EventLogCursor.from_positions(positions, base), store_time_s)

    def at(self, log: EventLogCursor) -> FeedCursor:
        return replace(self, log=log)
