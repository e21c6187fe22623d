"""The cursor of the live feed: what a client has received, in the event log and of the readings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.kernel.cursors import EVENTS, FEED, decode_cursor, encode_cursor
from domain.kernel.errors import ValidationFailed


@dataclass(frozen=True, slots=True)
class FeedCursor:
    """The client has received the log up to `position`, and every reading stored before `store_time_s` (Unix seconds, see
    `domain.telemetry.arrival_ports`). None: a cursor of the event log, which says nothing about readings."""

    position: int
    store_time_s: int | None

    def encode(self) -> str:
        return encode_cursor(FEED, self.position, self.store_time_s or 0)

    @classmethod
    def decode(cls, text: str) -> FeedCursor:
        """Raises ValidationFailed."""
        try:
            position, store_time_s = decode_cursor(FEED, text, 2)
        except ValidationFailed:
            return cls(decode_cursor(EVENTS, text)[0], None)
        return cls(position, store_time_s)

    def at(self, position: int) -> FeedCursor:
        return replace(self, position=position)
