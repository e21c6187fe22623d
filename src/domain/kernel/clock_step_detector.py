"""Notices when the wall clock has been set."""

from __future__ import annotations

from domain.kernel.clock import SECOND_MS, Clock

MIN_STEP_MS = SECOND_MS
"""A smaller change of the wall clock is drift: time synchronisation corrects it gradually."""


_MAX_READING_MS = 100


_READINGS = 5


class ClockStepDetector:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = self._read_offset_ms()

    def now_ms(self) -> int:
        """Wall time, without a step that `take_ms` has not returned yet."""
        return self._clock.monotonic_ms() + self._offset_ms

    def take_ms(self) -> int:
        """By how much the clock has been set since the last call; negative: back; 0 if it has not."""
        offset_ms = self._read_offset_ms()
        step_ms = offset_ms - self._offset_ms
        self._offset_ms = offset_ms
        return step_ms if abs(step_ms) >= MIN_STEP_MS else 0

    def _read_offset_ms(self) -> int:
        """Wall minus monotonic time. Read again when the process was held up between the two, which would look like a step."""
        offset_ms = 0
        for _ in range(_READINGS):
            before_ms = self._clock.monotonic_ms()
            offset_ms = self._clock.now_ms() - before_ms
            if self._clock.monotonic_ms() - before_ms <= _MAX_READING_MS:
                break
        return offset_ms
