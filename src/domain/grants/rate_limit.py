"""A grant's rolling limit: so many uses in any 60 seconds. What it means is defined in `reference.py`.

The uses are counted in the database, under the grant's row lock, because only there all instances meet; the decision over them
is made here and in the engine, alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.grants.window import WindowEvaluator
from domain.kernel.clock import MINUTE_MS, SECOND_MS

RATE_WINDOW_S = 60
RATE_WINDOW_MS = MINUTE_MS


@dataclass(frozen=True, slots=True)
class RateAllowance:
    """Whether one more use fits, how many more fit after it, and the Unix ms at which the next use leaves the window."""

    is_allowed: bool
    remaining: int
    next_free_ms: int


@dataclass(frozen=True, slots=True)
class RateLimitQuota:
    """What a call that passed is told of its grant's limit; `reset_s` seconds from now there is room for one more."""

    limit: int
    remaining: int
    reset_s: int

    @classmethod
    def from_allowance(cls, limit: int, allowance: RateAllowance, now_ms: int) -> RateLimitQuota:
        return cls(limit, allowance.remaining, max(1, -(-(allowance.next_free_ms - now_ms) // SECOND_MS)))


class RateLimitEvaluator(Protocol):
    """Port: two implementations, equal on every history of uses."""

    def rate_allowance(self, uses: Sequence[int], limit: int, now_ms: int) -> RateAllowance:
        """`uses`: Unix ms of earlier ones, in any order, at least the newest `limit` of the last 60 seconds. `limit` ≥ 1."""
        ...


class GrantEvaluator(WindowEvaluator, RateLimitEvaluator, Protocol):
    """Everything of a grant that time decides."""
