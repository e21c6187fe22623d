"""Gives each stored batch its store time, and marks late uploads, so that a feed client that resumes finds what it missed.

The law: batches are stored one at a time, in the order of their store times. The database holds the newest store time and never
decreases it, so neither a restart, nor another leader, nor a step of the clock breaks the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.kernel.clock import MINUTE_MS, SECOND_MS, Clock
from domain.kernel.unit_of_work import Transaction
from domain.rules.ports import TelemetryRow
from domain.telemetry.ports import LATE_AFTER_MS, HasReadingArrivals, LateMark


class ReadingArrivalTx(Transaction, HasReadingArrivals, Protocol): ...


class ReadingArrivalRecorder:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read_at_s: int | None = None
        self._store_time_s = 0
        self._marked: dict[int, LateMark] = {}
        """By device number: the mark of the current minute."""

    async def record(self, tx: ReadingArrivalTx, rows: Sequence[TelemetryRow]) -> int:
        """Call it in the transaction that stores the rows. Returns their store time, Unix seconds."""
        now_s = self._clock.now_ms() // SECOND_MS
        store_time_s = self._store_time_s
        if now_s != self._read_at_s:
            store_time_s = await tx.arrivals.advance_store_time(now_s)
        late = self._late_marks(rows, store_time_s)
        if late:
            await tx.arrivals.mark_late(late)
        tx.after_commit(lambda: self._remember(now_s, store_time_s, late))
        return store_time_s

    def _late_marks(self, rows: Sequence[TelemetryRow], store_time_s: int) -> list[LateMark]:
        """The marks that are not stored yet. Whole minutes, so that a device whose clock is slow is marked once a minute."""
        late_before_ms = store_time_s * SECOND_MS - LATE_AFTER_MS
        minute = store_time_s * SECOND_MS // MINUTE_MS
        marks: dict[int, LateMark] = {}
        for device_no, at_ms in [(row[0], row[1]) for row in rows if row[1] < late_before_ms]:
            mark = marks.get(device_no) or self._marked.get(device_no)
            from_ms = at_ms - at_ms % MINUTE_MS
            until_ms = from_ms + MINUTE_MS
            if mark is None or mark[1] != minute:
                marks[device_no] = (device_no, minute, from_ms, until_ms)
            elif from_ms < mark[2] or until_ms > mark[3]:
                marks[device_no] = (device_no, minute, min(from_ms, mark[2]), max(until_ms, mark[3]))
        return list(marks.values())

    def _remember(self, now_s: int, store_time_s: int, late: Sequence[LateMark]) -> None:
        if store_time_s * SECOND_MS // MINUTE_MS != self._store_time_s * SECOND_MS // MINUTE_MS:
            self._marked.clear()
        self._read_at_s, self._store_time_s = now_s, store_time_s
        self._marked.update((mark[0], mark) for mark in late)
