"""A clock that stands still until a test moves it."""

from __future__ import annotations

START_MS = 1_800_000_000_000


class ManualClock:
    def __init__(self, ms: int = START_MS) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms

    def forward(self, ms: float = 0, *, seconds: float = 0, minutes: float = 0, days: float = 0) -> None:
        self.ms += round(ms + seconds * 1000 + minutes * 60_000 + days * 86_400_000)
