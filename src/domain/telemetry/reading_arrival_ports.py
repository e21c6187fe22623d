"""Storage port for the order in which readings arrive: what was stored since a moment, for a feed client that resumes.

Readings are ordered by their own time, and have no column for their arrival, because another index would double what storing
them costs. Instead every batch has a store time, in seconds, which never decreases. A reading that is at most `LATE_AFTER_MS`
older than the store time of its batch is found by its own time. Of an older one, a late upload, the device and the range of times
are marked for the minute of the store time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from domain.kernel.clock import SECOND_MS
from domain.telemetry.ports import PackedRow

LATE_AFTER_MS = 5 * SECOND_MS
LATE_KEPT_S = 86_400
"""How long marks of late uploads are kept at least, and so how old a cursor may be at least."""

ReadingRange = tuple[int, int, int]
"""(device number, from, until): Unix ms; `until` is exclusive."""

LateMark = tuple[int, int, int, int]
"""(device number, minute of the store time, from, until): late uploads lie between the last two, Unix ms, `until` exclusive."""


class ReadingArrivalRepository(Protocol):
    async def store_time(self) -> int:
        """The store time of the newest batch, Unix seconds; 0 before the first."""

    async def marks_since(self) -> int:
        """The store time, Unix seconds, from which on no mark of a late upload has been deleted; 0 if none ever was."""

    async def advance_store_time(self, now_s: int) -> int:
        """Set the store time to `now_s` unless it is later already. Returns it."""

    async def mark_late(self, marks: Sequence[LateMark]) -> None:
        """Insert marks; the range of an existing one grows."""

    async def list_late(self, device_nos: Collection[int], since_minute: int) -> Mapping[int, tuple[int, int]]:
        """For each of these devices with late uploads in that minute or later: one range that contains them."""

    async def delete_late_before(self, minute: int, limit: int) -> int:
        """Delete up to `limit` marks of earlier minutes, and if there were any, raise `marks_since`. Returns how many."""

    async def count_messages(self, ranges: Sequence[ReadingRange], limit: int) -> Sequence[int]:
        """The number of stored messages in each range, counted up to `limit`."""

    async def list_messages(self, ranges: Sequence[ReadingRange]) -> Sequence[PackedRow]:
        """The stored messages in these ranges, which do not overlap, by device and time."""


class HasReadingArrivals(Protocol):
    @property
    def arrivals(self) -> ReadingArrivalRepository: ...
