"""What devices measured. The readings of one message are stored in one row: (device number, time, packed values)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """`value` for numbers and booleans, `text` for strings; exactly one is set. `at_ms` is the device's time, Unix ms, or the
    arrival if the device sent none; `reported_ms` is the device's time if that was too far ahead: `at_ms` is the arrival then."""

    metric: str
    value: float | None
    text: str | None
    unit: str | None
    at_ms: int
    reported_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BucketStatistics:
    """The numbers of one metric in a time bucket that starts at `from_ms` (Unix ms)."""

    metric: str
    from_ms: int
    low: float
    high: float
    mean: float
    count: int
    total: float
    last: float
    unit: str | None
