"""A clock that stands still until a test moves it: `forward` lets time pass, `step` sets the wall clock only."""

from __future__ import annotations

from adapters.randomness import RandomIdAndSecretGenerator
from domain.kernel.ids import IdPrefix
from domain.kernel.wall_clock import WallClock

START_MS = 1_800_000_000_000


class ManualClock:
    """Implements `SettableSteadyClock`."""

    def __init__(self, ms: int = START_MS) -> None:
        self.ms = ms
        self._stepped_ms = 0
        self._steady_offset_ms = 0
        self.wall = WallClock(self.now_ms, self.monotonic_ms, hold_ms=0)

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms - self._stepped_ms

    def steady_ms(self) -> int:
        return self.monotonic_ms() + self._steady_offset_ms

    def set_steady(self, steady_ms: int) -> None:
        self._steady_offset_ms = steady_ms - self.monotonic_ms()

    def step(self, *, minutes: float) -> None:
        """Set the wall clock, back if negative."""
        self.ms += round(minutes * 60_000)
        self._stepped_ms += round(minutes * 60_000)

    def forward(self, ms: float = 0, *, seconds: float = 0, minutes: float = 0, days: float = 0) -> None:
        self.ms += round(ms + seconds * 1000 + minutes * 60_000 + days * 86_400_000)


class OrderedIdGenerator(RandomIdAndSecretGenerator):
    """Ids in the order in which they were made: lists sort what is made in one millisecond by its id, and a clock that stands
    still makes everything in one millisecond."""

    def __init__(self) -> None:
        super().__init__()
        self._made = 0

    def new_id(self, prefix: IdPrefix) -> str:
        self._made += 1
        name, random_part = super().new_id(prefix).split("_")
        return f"{name}_{self._made:08}{random_part[8:]}"
