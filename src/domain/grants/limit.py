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
class Allowance:
    """Whether one more use fits, how many more fit after it, and the Unix ms at which the next use leaves the window."""

    fits: bool
    remaining: int
    frees_ms: int


@dataclass(frozen=True, slots=True)
class Quota:
    """What a call that passed is told of its grant's limit; `reset_s` seconds from now there is room for one more."""

    limit: int
    remaining: int
    reset_s: int

    @classmethod
    def of(cls, limit: int, allowance: Allowance, now_ms: int) -> Quota:
        return cls(limit, allowance.remaining, max(1, -(-(allowance.frees_ms - now_ms) // SECOND_MS)))


class LimitEvaluator(Protocol):
    """Port: two implementations, equal on every history of uses."""

    def allowance(self, uses: Sequence[int], limit: int, now_ms: int) -> Allowance:
        """`uses`: Unix ms of earlier ones, in any order, at least the newest `limit` of the last 60 seconds. `limit` ≥ 1."""
        ...


class GrantEvaluator(WindowEvaluator, LimitEvaluator, Protocol):
    """Everything of a grant that time decides."""
