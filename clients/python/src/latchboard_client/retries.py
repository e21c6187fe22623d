"""When a call is made again, and after how long."""

from __future__ import annotations

import random
from dataclasses import dataclass

REPEATABLE = {"GET", "PUT"}
"""Methods that may be repeated without an idempotency key, whatever became of the first request."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


def backoff_s(attempt: int) -> float:
    """The pause after the attempt with this number, from 1: doubled each time, with jitter."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt - 1, 10)) * random.uniform(0.5, 1.0)  # noqa: S311


@dataclass
class RetryPolicy:
    """`attempts`: in all. `longest_wait_s`: a longer `Retry-After` is raised at once as the error, not waited for."""

    attempts: int = 4
    longest_wait_s: float = 60.0

    def pause_s(self, attempt: int, repeatable: bool, status: int | None, code: str, retry_after_s: float | None) -> float | None:
        """Seconds to wait before the next attempt; None to give up. `status` None: no response came."""
        refused_untouched = status == 429  # every other end may come after the change was made
        transient = status is None or status in (502, 503, 504) or code == "IDEMPOTENCY_IN_PROGRESS"
        if attempt >= self.attempts or not (refused_untouched or (repeatable and transient)):
            return None
        pause = retry_after_s if retry_after_s is not None else backoff_s(attempt)
        return pause if pause <= self.longest_wait_s else None
