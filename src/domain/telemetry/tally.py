"""Summing up telemetry by stretch of time and metric: the readable definition. `rust/engine/src/tally.rs` must equal it.

Rows come newest first, everywhere and always, because floating-point sums depend on their order: one order makes a sum out of
roll-ups equal to the sum out of the readings to the last bit. A sum that no double can hold stays at the largest one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from domain.rules.ports import Cell
from domain.telemetry.packing import columns, unpack

_MOST = sys.float_info.max


@dataclass(slots=True)
class _Stretch:
    from_ms: int
    metric_no: int
    count: int
    low: float
    high: float
    total: float
    last: float
    last_ms: int

    def take(self, value: float) -> None:
        self.count += 1
        if value < self.low:
            self.low = value
        if value > self.high:
            self.high = value
        self.total = saturated(self.total + value)

    def cell(self) -> Cell:
        return (self.from_ms, self.metric_no, self.count, self.low, self.high, self.total, self.last, self.last_ms)


class PlainTally:
    """A `Tally` in Python."""

    def __init__(self, step_ms: int, metric_no: int | None = None) -> None:
        self._step_ms = step_ms
        self._only = metric_no
        self._stretches: dict[tuple[int, int], _Stretch] = {}

    def add(self, rows: Iterable[tuple[int, bytes]]) -> None:
        for ts_ms, packed in rows:
            from_ms = ts_ms - ts_ms % self._step_ms
            for metric_no, value in unpack(packed):
                number, _ = columns(value)
                if number is not None and self._only in (None, metric_no):
                    self._count(from_ms, metric_no, number, ts_ms)

    def _count(self, from_ms: int, metric_no: int, value: float, ts_ms: int) -> None:
        stretch = self._stretches.get((from_ms, metric_no))
        if stretch is None:
            self._stretches[from_ms, metric_no] = _Stretch(from_ms, metric_no, 1, value, value, value, value, ts_ms)
        else:
            stretch.take(value)

    def cells(self) -> list[Cell]:
        return [stretch.cell() for _, stretch in sorted(self._stretches.items(), key=lambda item: (-item[0][0], item[0][1]))]


def saturated(total: float) -> float:
    return max(-_MOST, min(_MOST, total))
