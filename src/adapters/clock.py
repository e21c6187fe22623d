"""The only module that reads the clocks of the machine; the linter lets no other."""

from __future__ import annotations

import time

from domain.kernel.clock import SECOND_MS
from domain.kernel.wall_clock import WallClock

_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux stops CLOCK_MONOTONIC while the machine sleeps: a command that was to expire in 5 s would still be sent after a night."""
_UNSYNCHRONIZED = 0x40
"""STA_UNSYNC of adjtimex(2)."""
_TIMEX_LONGS, _STATUS, _SECONDS = 64, 5, 9
"""Places in `struct timex`, as long integers; all of it fits into so many."""
_MAX_OFFSET_S = 2


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


class JudgedClock(SystemClock):
    """The clock of the running service: its wall time is one that may be believed."""

    def __init__(self, hold_s: int) -> None:
        machine = SystemClock()
        self.wall = WallClock(
            machine.now_ms, machine.monotonic_ms, hold_ms=hold_s * SECOND_MS, is_synchronized=kernel_is_synchronized
        )
        super().__init__()

    def now_ms(self) -> int:
        return self.wall.now_ms()


def kernel_is_synchronized() -> bool:
    """Whether a time service (NTP) vouches for the clock of the kernel, and this process has that clock: a program may be shown
    another one. False where the kernel does not tell."""
    import ctypes  # only a clock in doubt needs it

    timex = (ctypes.c_long * _TIMEX_LONGS)()
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.byref(timex))
    except (AttributeError, OSError):
        return False
    is_own = abs(timex[_SECONDS] - time.time()) <= _MAX_OFFSET_S
    return state >= 0 and not timex[_STATUS] & _UNSYNCHRONIZED and is_own
