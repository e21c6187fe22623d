"""What an answer means, and when the next attempt is due."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.kernel.clock import Now
from domain.kernel.ids import AccountId, DeliveryId, EventId, KeyId, WebhookId
from domain.webhooks.model import (
    RETRY_BACKOFF,
    DeliveryAttempt,
    Webhook,
    WebhookDelivery,
    WebhookDeliveryState,
    new_secret,
    shown_prefix,
)
from domain.webhooks.policy import (
    DEAD_REASON,
    GONE_REASON,
    INTERRUPTED_MESSAGE,
    MAX_RETRY_AFTER_S,
    after_response,
    finish_attempt,
    interrupt_attempt,
    mark_interrupted,
    retry_pause_ms,
)
from domain.webhooks.ports import OutboundHttpResponse

NOW = 1_800_000_000_000
AT = Now(NOW, 900_000_000_000)
"""The wall clock has been set."""
DAY = 86_400_000


def reply(status: int | None = 200, error: str | None = None, retry_after_s: int | None = None) -> OutboundHttpResponse:
    return OutboundHttpResponse(status, error, b"", 12, retry_after_s)


def delivery(attempts: int = 0) -> WebhookDelivery:
    return WebhookDelivery(
        7,
        WebhookId("whk_a"),
        AccountId("acc_a"),
        None,
        EventId("evt_a"),
        "ping",
        b"{}",
        WebhookDeliveryState.PENDING,
        attempts,
        NOW,
        NOW + 30_000,
        NOW,
    )


def attempt(number: int = 1) -> DeliveryAttempt:
    return DeliveryAttempt(DeliveryId("whd_a"), 7, WebhookId("whk_a"), EventId("evt_a"), "ping", None, number, NOW)


def webhook(failing_since_ms: int | None = None) -> Webhook:
    return Webhook(
        WebhookId("whk_a"),
        AccountId("acc_a"),
        KeyId("key_a"),
        "https://example.com",
        b"",
        b"",
        "whsec_abcd",
        1,
        True,
        None,
        failing_since_ms,
        NOW,
        NOW,
    )


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_is_success(status: int) -> None:
    delivered, finished = finish_attempt(delivery(), attempt(), reply(status), AT, 0.0)
    assert delivered.state is WebhookDeliveryState.DELIVERED
    assert finished.succeeded
    assert finished.error is None
    assert finished.next_attempt_ms is None


@pytest.mark.parametrize("answer", [reply(199), reply(301), reply(404), reply(500), reply(None, "gone"), reply(200, "cut")])
def test_everything_else_is_failure(answer: OutboundHttpResponse) -> None:
    pending, finished = finish_attempt(delivery(), attempt(), answer, AT, 0.0)
    assert pending.state is WebhookDeliveryState.PENDING
    assert not finished.succeeded
    assert finished.error
    assert finished.next_attempt_ms == NOW + 5_000
    assert pending.due_ms == AT.steady_ms + 5_000


def test_after_six_attempts_it_is_given_up() -> None:
    pending, pauses = delivery(), []
    for number in range(1, 7):
        pending, finished = finish_attempt(pending, attempt(number), reply(503), AT, 0.0)
        if finished.next_attempt_ms is not None:
            pauses.append(finished.next_attempt_ms - NOW)
    assert pending.state is WebhookDeliveryState.GIVEN_UP
    assert pending.attempts == 6
    assert pauses == [5_000, 10_000, 20_000, 40_000, 80_000]


@given(st.integers(1, 5), st.floats(-1, 1), st.none() | st.integers(0, 10**9))
def test_a_pause_stays_within_ten_percent_and_retry_after_only_lengthens(done: int, spread: float, requested: int | None) -> None:
    pause_ms = retry_pause_ms(done, spread, requested)
    planned_ms = RETRY_BACKOFF.pause_s(done) * 1_000
    assert pause_ms >= planned_ms * 0.9 - 1
    assert pause_ms <= max(planned_ms * 1.1, MAX_RETRY_AFTER_S * 1_000)
    if requested is None:
        assert pause_ms <= planned_ms * 1.1


def test_an_interrupted_attempt_does_not_count() -> None:
    pending, finished = interrupt_attempt(delivery(3), attempt(4), AT)
    assert pending.attempts == 3
    assert pending.state is WebhookDeliveryState.PENDING
    assert pending.claimed_until_ms == delivery(3).claimed_until_ms  # the lease it is written under
    assert not finished.succeeded


def test_an_attempt_without_an_end_is_shown_as_interrupted_once_it_cannot_be_under_way() -> None:
    assert mark_interrupted(attempt(), NOW + 1_000).error is None
    assert mark_interrupted(attempt(), NOW + 120_000).error == INTERRUPTED_MESSAGE


def test_health_follows_the_answers() -> None:
    assert after_response(healthy := webhook(), reply(), AT) is healthy
    assert after_response(webhook(AT.steady_ms - 1), reply(), AT).failing_since_ms is None
    assert after_response(webhook(), reply(500), AT).failing_since_ms == AT.steady_ms
    assert after_response(failing := webhook(AT.steady_ms - DAY), reply(500), AT) is failing
    dead = after_response(webhook(AT.steady_ms - 5 * DAY), reply(500), AT)
    assert (dead.enabled, dead.disabled_reason, dead.updated_ms) == (False, DEAD_REASON, NOW)
    gone = after_response(webhook(), reply(410), AT)
    assert (gone.enabled, gone.disabled_reason, gone.updated_ms) == (False, GONE_REASON, NOW)


@given(st.binary(min_size=32, max_size=32))
def test_a_secret_is_whsec_and_base64_of_its_bytes(random: bytes) -> None:
    secret = new_secret(random)
    assert secret.startswith("whsec_")
    assert base64.b64decode(secret[6:]) == random
    assert shown_prefix(secret) == secret[:10]
