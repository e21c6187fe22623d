"""What the response to an attempt means: for the delivery, when the next attempt is due; for the webhook, whether it is disabled.

An attempt succeeds only with a complete 2xx response. After a failure, the pauses of `model.RETRY_BACKOFF` apply, spread by the
jitter; `Retry-After` may lengthen a pause, never shorten it. An attempt that a crash or a stop interrupted does not count: the
same attempt number is tried again. A webhook is disabled by a member, by 410 Gone, or after five days without a success.
"""

from __future__ import annotations

from dataclasses import replace

from domain.kernel.clock import DAY_MS, SECOND_MS, Now
from domain.kernel.dataclasses import fast_replace
from domain.kernel.errors import Conflict
from domain.webhooks.model import (
    LEASE_MS,
    MAX_ATTEMPTS,
    RESPONSE_TIMEOUT_S,
    RETRY_BACKOFF,
    DeliveryAttempt,
    Webhook,
    WebhookDelivery,
    WebhookDeliveryState,
)
from domain.webhooks.ports import OutboundHttpResponse

DISABLE_AFTER_MS = 5 * 24 * 3_600_000
JITTER = 0.1
HTTP_GONE = 410
MAX_RETRY_AFTER_S = 3_600
"""The longest accepted `Retry-After`: an hour, so that one header cannot postpone a delivery indefinitely."""
INTERRUPTED_MESSAGE = "The service stopped during this attempt. It is made again."
GONE_REASON = "The receiver answered 410 Gone. Correct the url, then enable the webhook again."
DEAD_REASON = (
    f"No delivery has succeeded for {DISABLE_AFTER_MS // DAY_MS} days. Repair the receiver, then enable the webhook again."
)


def finish_attempt(
    delivery: WebhookDelivery, attempt: DeliveryAttempt, response: OutboundHttpResponse, at: Now, spread: float
) -> tuple[WebhookDelivery, DeliveryAttempt]:
    """Both after the response. `spread`: -1 to 1, by which a pause before the next attempt differs from the planned one."""
    success = is_success(response)
    attempts = delivery.attempts + 1
    is_final = success or attempts >= MAX_ATTEMPTS or response.status == HTTP_GONE
    pause_ms = None if is_final else retry_pause_ms(attempts, spread, response.retry_after_s)
    state = WebhookDeliveryState.PENDING
    if is_final:
        state = WebhookDeliveryState.DELIVERED if success else WebhookDeliveryState.GIVEN_UP
    due_ms = delivery.due_ms if pause_ms is None else at.steady_ms + pause_ms
    next_ms = None if pause_ms is None else at.wall_ms + pause_ms
    error = None if success else failure_reason(response)
    return (
        _update(delivery, state, attempts, due_ms),
        _finish(attempt, at.wall_ms, response.status, error, success, response.duration_ms, next_ms),
    )


_update = fast_replace(WebhookDelivery, "state", "attempts", "due_ms")
_finish = fast_replace(DeliveryAttempt, "finished_ms", "status_code", "error", "succeeded", "duration_ms", "next_attempt_ms")


def interrupt_attempt(delivery: WebhookDelivery, attempt: DeliveryAttempt, at: Now) -> tuple[WebhookDelivery, DeliveryAttempt]:
    """A stop of the service interrupted the attempt: it does not count, and the delivery is due again at once."""
    return (
        replace(delivery, due_ms=at.steady_ms),
        replace(attempt, finished_ms=at.wall_ms, error=INTERRUPTED_MESSAGE, next_attempt_ms=at.wall_ms),
    )


def mark_interrupted(attempt: DeliveryAttempt, now_ms: int) -> DeliveryAttempt:
    """Marks an attempt without an end as interrupted when it can no longer be in flight."""
    if attempt.finished_ms is not None or now_ms - attempt.created_ms <= (RESPONSE_TIMEOUT_S * SECOND_MS) + LEASE_MS:
        return attempt
    return replace(attempt, error=INTERRUPTED_MESSAGE)


def is_success(response: OutboundHttpResponse) -> bool:
    return response.error is None and response.status is not None and 200 <= response.status < 300


def failure_reason(response: OutboundHttpResponse) -> str:
    """Why the attempt failed, for the delivery log."""
    if response.error is not None:
        return response.error
    if response.status is not None and 300 <= response.status < 400:
        return f"The receiver answered {response.status}. Redirects are not followed; give the final address as the url."
    return f"The receiver answered {response.status}."


def retry_pause_ms(attempts: int, spread: float, retry_after_s: int | None) -> int:
    """After `attempts` (1 to 5) attempts have failed; `spread` is -1 to 1."""
    planned = RETRY_BACKOFF.pause_s(attempts) * (1 + JITTER * max(-1.0, min(1.0, spread)))
    requested = min(retry_after_s or 0, MAX_RETRY_AFTER_S)
    return int(max(planned, requested) * SECOND_MS)


def after_response(webhook: Webhook, response: OutboundHttpResponse, at: Now) -> Webhook:
    """The webhook after an attempt; itself when nothing about it changes."""
    if is_success(response):
        return webhook if webhook.failing_since_ms is None else replace(webhook, failing_since_ms=None)
    if response.status == HTTP_GONE and response.error is None:
        return disable(webhook, GONE_REASON, at.wall_ms)
    if webhook.failing_since_ms is None:
        return replace(webhook, failing_since_ms=at.steady_ms)
    return disable(webhook, DEAD_REASON, at.wall_ms) if at.steady_ms - webhook.failing_since_ms >= DISABLE_AFTER_MS else webhook


def disable(webhook: Webhook, reason: str | None, now_ms: int) -> Webhook:
    return replace(webhook, enabled=False, disabled_reason=reason, updated_ms=now_ms)


def enable(webhook: Webhook, now_ms: int) -> Webhook:
    """Enables the webhook and forgets its earlier failures."""
    return replace(webhook, enabled=True, disabled_reason=None, failing_since_ms=None, updated_ms=now_ms)


def require_enabled(webhook: Webhook) -> None:
    if not webhook.enabled:
        raise Conflict("This webhook is disabled and sends nothing. Enable it first.", code="WEBHOOK_DISABLED")
