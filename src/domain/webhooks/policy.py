"""What is sent, what an answer means, and when the next attempt is due: decided without I/O.

An attempt succeeds with a complete 2xx answer, and with nothing else. After a failure the next attempt follows the pauses of
`model.RETRY_BACKOFF`, spread by the jitter; `Retry-After` may lengthen a pause, never shorten it. 410, or five days without a
success, disables the webhook. An attempt that a crash or a stop interrupted counts for nothing: the same number is tried again.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from domain.kernel.clock import DAY_MS, SECOND_MS, to_iso
from domain.kernel.domain_events import JsonObject
from domain.kernel.errors import Conflict
from domain.webhooks.model import (
    DISABLE_AFTER_MS,
    MAX_ATTEMPTS,
    RESPONSE_TIMEOUT_S,
    RETRY_BACKOFF,
    Attempt,
    Delivery,
    DeliveryState,
    Webhook,
)
from domain.webhooks.ports import WebhookResponse
from domain.webhooks.signature_reference import SECRET_PREFIX

PING_EVENT_TYPE = "ping"
JITTER = 0.1
MAX_RETRY_AFTER_S = 3_600
"""What a `Retry-After` can ask for at the most: an hour, so that one header cannot put a delivery off for good."""
LEASE_MS = 30 * SECOND_MS
"""Three times what an attempt may take: a lease runs out on a dead worker, never on a slow one."""
MAX_WEBHOOKS_PER_KEY = 20
SHOWN_PREFIX_LENGTH = len(SECRET_PREFIX) + 4
HTTP_GONE = 410
USER_AGENT = "Latchboard-Webhooks/1"
INTERRUPTED_MESSAGE = "The service stopped during this attempt. It is made again."


def new_secret(random: bytes) -> str:
    return SECRET_PREFIX + base64.b64encode(random).decode()


def shown_prefix(secret: str) -> str:
    return secret[:SHOWN_PREFIX_LENGTH]


def encode_payload(payload: JsonObject) -> bytes:
    """The payload as it will stand in every attempt's body, unchanged."""
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def build_body(attempt: Attempt, data: bytes) -> bytes:
    """The exact bytes that are signed and sent. Ids and types are of our own making and need no escaping."""
    head = (
        f'{{"id":"{attempt.delivery_id}","type":"{attempt.event_type}","createdAt":"{_format_time(attempt.created_ms)}","data":'
    )
    return head.encode() + data + b"}"


_format_time = lru_cache(maxsize=64)(to_iso)
"""Attempts of one turn begin in the same millisecond."""


def build_headers(attempt: Attempt, service: str, standard: str) -> tuple[tuple[str, str], ...]:
    """Those of the service, and those of Standard Webhooks 1.0.0, whose id is the event's and stays the same over retries."""
    return (
        ("Content-Type", "application/json"),
        ("User-Agent", USER_AGENT),
        ("X-Service-Event", attempt.event_type),
        ("X-Service-Delivery", attempt.delivery_id),
        ("X-Service-Signature", service),
        ("webhook-id", attempt.event_id),
        ("webhook-timestamp", str(attempt.created_ms // SECOND_MS)),
        ("webhook-signature", standard),
    )


def is_success(reply: WebhookResponse) -> bool:
    return reply.error is None and reply.status is not None and 200 <= reply.status < 300


def failure_reason(reply: WebhookResponse) -> str:
    """Why it failed, for the log."""
    if reply.error is not None:
        return reply.error
    if reply.status is not None and 300 <= reply.status < 400:
        return f"The receiver answered {reply.status}. Redirects are not followed; give the final address as the url."
    return f"The receiver answered {reply.status}."


def retry_pause_ms(attempts: int, spread: float, retry_after_s: int | None) -> int:
    """After `attempts` (1 to 5) attempts have failed; `spread` is -1 to 1."""
    planned = RETRY_BACKOFF.pause_s(attempts) * (1 + JITTER * max(-1.0, min(1.0, spread)))
    asked = min(retry_after_s or 0, MAX_RETRY_AFTER_S)
    return int(max(planned, asked) * SECOND_MS)


@dataclass(frozen=True, slots=True)
class DeliveryUpdate:
    delivery: Delivery
    attempt: Attempt


def finish_attempt(delivery: Delivery, attempt: Attempt, reply: WebhookResponse, now_ms: int, spread: float) -> DeliveryUpdate:
    """Delivery and attempt after what the receiver said."""
    success = is_success(reply)
    attempts = delivery.attempts + 1
    over = success or attempts >= MAX_ATTEMPTS or reply.status == HTTP_GONE
    next_ms = None if over else now_ms + retry_pause_ms(attempts, spread, reply.retry_after_s)
    state = DeliveryState.PENDING
    if over:
        state = DeliveryState.DELIVERED if success else DeliveryState.GIVEN_UP
    due_ms = delivery.due_ms if next_ms is None else next_ms
    error = None if success else failure_reason(reply)
    return DeliveryUpdate(
        _updated_delivery(delivery, state, attempts, due_ms),
        _finished_attempt(attempt, now_ms, reply.status, error, success, reply.duration_ms, next_ms),
    )


def _updated_delivery(was: Delivery, state: DeliveryState, attempts: int, due_ms: int) -> Delivery:
    """By position: `replace` costs four times as much, and this runs once a delivery."""
    return Delivery(
        was.no,
        was.webhook_id,
        was.account_id,
        was.device_id,
        was.event_id,
        was.event_type,
        was.data,
        state,
        attempts,
        due_ms,
        was.claimed_until_ms,
        was.created_ms,
    )


def _finished_attempt(
    was: Attempt, at_ms: int, status: int | None, error: str | None, success: bool, took_ms: int, next_ms: int | None
) -> Attempt:
    return Attempt(
        was.delivery_id,
        was.delivery_no,
        was.webhook_id,
        was.event_id,
        was.event_type,
        was.device_id,
        was.number,
        was.created_ms,
        at_ms,
        status,
        error,
        success,
        took_ms,
        next_ms,
    )


def interrupt_attempt(delivery: Delivery, attempt: Attempt, now_ms: int) -> DeliveryUpdate:
    """A stop of the service cut the attempt: it does not count, and is made again as soon as there is somebody to make it."""
    return DeliveryUpdate(
        replace(delivery, due_ms=now_ms),
        replace(attempt, finished_ms=now_ms, error=INTERRUPTED_MESSAGE, next_attempt_ms=now_ms),
    )


class HealthChange(StrEnum):
    """What an attempt's end changes about its webhook."""

    SAME = "same"
    RECOVERED = "recovered"
    FAILING = "failing"
    GONE = "gone"
    DEAD = "dead"


def health_change(webhook: Webhook, reply: WebhookResponse, now_ms: int) -> HealthChange:
    if is_success(reply):
        return HealthChange.SAME if webhook.failing_since_ms is None else HealthChange.RECOVERED
    if reply.status == HTTP_GONE and reply.error is None:
        return HealthChange.GONE
    if webhook.failing_since_ms is None:
        return HealthChange.FAILING
    return HealthChange.DEAD if now_ms - webhook.failing_since_ms >= DISABLE_AFTER_MS else HealthChange.SAME


def apply_health_change(webhook: Webhook, change: HealthChange, now_ms: int) -> Webhook:
    match change:
        case HealthChange.RECOVERED:
            return replace(webhook, failing_since_ms=None)
        case HealthChange.FAILING:
            return replace(webhook, failing_since_ms=now_ms)
        case HealthChange.GONE:
            reason = "The receiver answered 410 Gone. Correct the url, then enable the webhook again."
            return disable(webhook, reason, now_ms)
        case HealthChange.DEAD:
            days = DISABLE_AFTER_MS // DAY_MS
            reason = f"No delivery has succeeded for {days} days. Repair the receiver, then enable the webhook again."
            return disable(webhook, reason, now_ms)
        case HealthChange.SAME:
            return webhook


def disable(webhook: Webhook, reason: str | None, now_ms: int) -> Webhook:
    return replace(webhook, enabled=False, disabled_reason=reason, updated_ms=now_ms)


def enable(webhook: Webhook, now_ms: int) -> Webhook:
    """A webhook that is enabled again begins with a clean slate."""
    return replace(webhook, enabled=True, disabled_reason=None, failing_since_ms=None, updated_ms=now_ms)


def require_enabled(webhook: Webhook) -> None:
    if not webhook.enabled:
        raise Conflict("This webhook is disabled and sends nothing. Enable it first.", code="WEBHOOK_DISABLED")


def mark_interrupted(attempt: Attempt, now_ms: int) -> Attempt:
    """An attempt without an end that can no longer be under way was interrupted."""
    if attempt.finished_ms is not None or now_ms - attempt.created_ms <= (RESPONSE_TIMEOUT_S * SECOND_MS) + LEASE_MS:
        return attempt
    return replace(attempt, error=INTERRUPTED_MESSAGE)
