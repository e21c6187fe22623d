"""A grant's rolling rate limit: a number of uses in any 60 seconds. `reference_window_and_rate_limit.py` defines its meaning.

The uses are counted in the database under the grant's row lock, because several instances may count at once. The decision over
the counted uses is made by the native engine or by `reference_window_and_rate_limit.py`, with equal results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.grants.grant_window import GrantWindowEvaluator
from domain.kernel.clock import MINUTE_MS, SECOND_MS

RATE_WINDOW_S = 60
RATE_WINDOW_MS = MINUTE_MS


def rate_window(now_ms: int) -> tuple[int, int]:
    """(after, until) in Unix ms: the uses that count. Another instance's clock may be ahead, by less than the window. A use
    further ahead was counted before the clock was set back, and must not block the grant until that time comes again."""
    return now_ms - RATE_WINDOW_MS, now_ms + RATE_WINDOW_MS


@dataclass(frozen=True, slots=True)
class GrantRateLimitDecision:
    """Whether one more use fits, how many more fit after it, and the Unix ms at which the next use leaves the window."""

    is_allowed: bool
    remaining: int
    next_free_ms: int


@dataclass(frozen=True, slots=True)
class RemainingRateLimit:
    """What is left of a grant's rate limit after an allowed call; the next use is free in `reset_s` seconds."""

    limit: int
    remaining: int
    reset_s: int

    @classmethod
    def from_allowance(cls, limit: int, allowance: GrantRateLimitDecision, now_ms: int) -> RemainingRateLimit:
        return cls(limit, allowance.remaining, max(1, -(-(allowance.next_free_ms - now_ms) // SECOND_MS)))


class RateLimitEvaluator(Protocol):
    """Port with two implementations (Rust and Python) that agree on every history of uses."""

    def rate_allowance(self, uses: Sequence[int], limit: int, now_ms: int) -> GrantRateLimitDecision:
        """`uses`: Unix ms of earlier uses in any order, at least the newest `limit` of the last 60 seconds. `limit` ≥ 1."""


class GrantWindowAndRateEvaluator(GrantWindowEvaluator, RateLimitEvaluator, Protocol):
    """Port: all time-dependent checks of a grant."""
