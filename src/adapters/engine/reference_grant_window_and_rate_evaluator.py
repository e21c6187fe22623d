"""Grant windows and limits by their reference definitions: for tests, and for `engine = "reference"`."""

from __future__ import annotations

from collections.abc import Sequence

from domain.grants.model import GrantRateLimitDecision, WeeklyGrantWindow
from domain.grants.reference import is_open, load_timezone, next_open_ms, rate_allowance
from domain.kernel.errors import ValidationFailed


class ReferenceGrantWindowAndRateEvaluator:
    def is_known_timezone(self, timezone: str) -> bool:
        try:
            load_timezone(timezone)
        except ValidationFailed:
            return False
        return True

    def is_open(self, window: WeeklyGrantWindow, at_ms: int) -> bool:
        return is_open(window, at_ms)

    def next_open_ms(self, window: WeeklyGrantWindow, at_ms: int) -> int | None:
        return next_open_ms(window, at_ms)

    def rate_allowance(self, uses: Sequence[int], limit: int, now_ms: int) -> GrantRateLimitDecision:
        return rate_allowance(uses, limit, now_ms)
