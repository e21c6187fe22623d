"""At most so many wrong attempts in a window: codes, passwords that are entered again, requests for a link."""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.accounts.session_and_sign_in_model import LoginFailures
from domain.kernel.clock import SECOND_MS, is_of_earlier_clock
from domain.kernel.errors import RateLimited


def is_over(failures: LoginFailures, window_ms: int, now_ms: int) -> bool:
    """Whether the window of these failures has ended."""
    return now_ms >= failures.since_ms + window_ms or is_of_earlier_clock(failures.last_ms, now_ms)


def increment_failures(failures: LoginFailures | None, subject: str, now_ms: int, window_ms: int) -> LoginFailures:
    """One more failure. After the window has ended, counting starts again at 1."""
    if failures is None or is_over(failures, window_ms, now_ms):
        return LoginFailures(subject, 1, now_ms, now_ms)
    return replace(failures, count=failures.count + 1, last_ms=now_ms)


@dataclass(frozen=True, slots=True)
class AttemptLimit:
    """At most `max_failures` wrong attempts in the window that begins with the first of them."""

    max_failures: int
    window_ms: int

    def check(self, failures: LoginFailures | None, now_ms: int, what: str) -> None:
        """Raises RateLimited `LOGIN_THROTTLED`; `what` names the attempts in its message."""
        if failures is None or failures.count < self.max_failures or is_over(failures, self.window_ms, now_ms):
            return
        wait_s = max(1, -(-(failures.since_ms + self.window_ms - now_ms) // SECOND_MS))
        raise RateLimited(f"Too many {what}. Try again in {wait_s} seconds.", code="LOGIN_THROTTLED", retry_after=wait_s)

    def count(self, failures: LoginFailures | None, subject: str, now_ms: int) -> LoginFailures:
        """One more wrong attempt."""
        return increment_failures(failures, subject, now_ms, self.window_ms)
