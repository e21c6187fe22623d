"""A clock that is set back locks nobody out, forgets the counts only once, and lengthens no proof of presence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from domain.kernel.clock import HOUR_MS, SECOND_MS
from domain.kernel.errors import RateLimited
from domain.kernel.ids import UserId
from domain.sign_in.model import LoginFailures, PasswordChangeCode, SignInUnlockLink
from domain.sign_in.password_change import _check_cooldown
from domain.sign_in.policy import (
    CODE_ATTEMPTS,
    LOGIN_FAILURE_WINDOW_MS,
    LoginThrottleSubjects,
    check_login_backoff,
    increment_failures,
)
from domain.sign_in.presence import STEP_UP_TTL_MS, is_verified
from domain.sign_in.unlock_link import _is_cooling_down

NOW = 1_760_000_000_000
SET_BACK = NOW - HOUR_MS
SKEWED = NOW - 30 * SECOND_MS
PAIR = LoginThrottleSubjects.for_attempt("ada@example.com", "192.0.2.1").pair
USER = UserId("usr_a")


def failed(times: int, at_ms: int, failures: LoginFailures | None = None) -> LoginFailures:
    for _ in range(times):
        failures = increment_failures(failures, PAIR, at_ms, LOGIN_FAILURE_WINDOW_MS)
    assert failures is not None
    return failures


def test_failed_logins_before_the_step_delay_no_login_and_those_after_it_do() -> None:
    before = failed(20, NOW)
    for now_ms in (NOW, SKEWED):
        with pytest.raises(RateLimited):
            check_login_backoff(before, now_ms)
    check_login_backoff(before, SET_BACK)
    with pytest.raises(RateLimited):
        check_login_backoff(failed(20, SET_BACK, before), SET_BACK)


def test_wrong_codes_before_the_step_block_no_code_and_those_after_it_do() -> None:
    failures: LoginFailures | None = None
    for now_ms in (NOW, SET_BACK):
        CODE_ATTEMPTS.check(failures, now_ms, "wrong codes")
        for _ in range(CODE_ATTEMPTS.max_failures):
            failures = CODE_ATTEMPTS.count(failures, "otp:usr_a", now_ms)
        with pytest.raises(RateLimited):
            CODE_ATTEMPTS.check(failures, now_ms, "wrong codes")


def test_a_code_or_link_of_before_the_step_delays_no_other() -> None:
    code = PasswordChangeCode(USER, b"", NOW, NOW + HOUR_MS, 0, False)
    link = SignInUnlockLink(USER, b"", NOW, NOW + HOUR_MS, False)
    for now_ms in (NOW, SKEWED):
        with pytest.raises(RateLimited):
            _check_cooldown(code, now_ms)
        assert _is_cooling_down(link, now_ms)
    _check_cooldown(code, SET_BACK)
    assert not _is_cooling_down(link, SET_BACK)


async def test_a_proof_of_presence_of_before_the_step_does_not_count() -> None:
    class Sessions:
        async def get(self, session_id: str) -> SimpleNamespace:
            return SimpleNamespace(verified_ms=NOW)

    tx: Any = SimpleNamespace(user_sessions=Sessions())
    caller: Any = SimpleNamespace(session_id="a session")
    for now_ms, counts in ((NOW, True), (SKEWED, True), (NOW + STEP_UP_TTL_MS + 1, False), (SET_BACK, False)):
        assert await is_verified(tx, caller, now_ms, STEP_UP_TTL_MS) is counts
