"""The only module that reads the clocks of the machine; the linter lets no other."""

from __future__ import annotations

import time

_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux stops CLOCK_MONOTONIC while the machine sleeps: a command that was to expire in 5 s would still be sent after a night."""


class SystemClock:
    """Implements `SettableSteadyClock`. Until it is set, steady time is the wall time at the construction, counted on."""

    def __init__(self) -> None:
        self._steady_offset_ms = self.now_ms() - self.monotonic_ms()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(_MONOTONIC) // 1_000_000

    def steady_ms(self) -> int:
        return self.monotonic_ms() + self._steady_offset_ms

    def set_steady(self, steady_ms: int) -> None:
        self._steady_offset_ms = steady_ms - self.monotonic_ms()
