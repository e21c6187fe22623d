"""What is sent, what an answer means, and when the next attempt is due: decided without I/O.

An attempt succeeds with a complete 2xx answer, and with nothing else. After a failure the next attempt follows the pauses of
`model.PAUSES_S`, spread by the jitter; `Retry-After` may lengthen a pause, never shorten it. 410, or five days without a
success, disables the webhook. An attempt that a crash or a stop interrupted counts for nothing: the same number is tried again.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from domain.kernel.clock import DAY_MS, SECOND_MS, iso
from domain.kernel.errors import Conflict
from domain.kernel.facts import JsonObject
from domain.webhooks.model import (
    ANSWER_WITHIN_S,
    GIVE_UP_AFTER_MS,
    MAX_ATTEMPTS,
    PAUSES_S,
    Attempt,
    Delivery,
    DeliveryState,
    Webhook,
)
from domain.webhooks.ports import Reply
from domain.webhooks.reference import SECRET_PREFIX

PING = "ping"
JITTER = 0.1
LONGEST_PAUSE_S = 3_600
"""What a `Retry-After` can ask for at the most: an hour, so that one header cannot put a delivery off for good."""
LEASE_MS = 30 * SECOND_MS
"""Three times what an attempt may take: a lease runs out on a dead worker, never on a slow one."""
WEBHOOKS_PER_KEY = 20
SHOWN_LENGTH = len(SECRET_PREFIX) + 4
GONE = 410
USER_AGENT = "Latchboard-Webhooks/1"
INTERRUPTED = "The service stopped during this attempt. It is made again."


def new_secret(random: bytes) -> str:
    return SECRET_PREFIX + base64.b64encode(random).decode()


def shown_prefix(secret: str) -> str:
    return secret[:SHOWN_LENGTH]


def data_bytes(payload: JsonObject) -> bytes:
    """The payload as it will stand in every attempt's body, unchanged."""
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def envelope(attempt: Attempt, data: bytes) -> bytes:
    """The exact bytes that are signed and sent. Ids and types are of our own making and need no escaping."""
    head = f'{{"id":"{attempt.delivery_id}","type":"{attempt.event_type}","createdAt":"{_instant(attempt.created_ms)}","data":'
    return head.encode() + data + b"}"


_instant = lru_cache(maxsize=64)(iso)
"""Attempts of one turn begin in the same millisecond."""


def headers(attempt: Attempt, service: str, standard: str) -> tuple[tuple[str, str], ...]:
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


def succeeded(reply: Reply) -> bool:
    return reply.error is None and reply.status is not None and 200 <= reply.status < 300


def failure(reply: Reply) -> str:
    """Why it failed, for the log."""
    if reply.error is not None:
        return reply.error
    if reply.status is not None and 300 <= reply.status < 400:
        return f"The receiver answered {reply.status}. Redirects are not followed; give the final address as the url."
    return f"The receiver answered {reply.status}."


def pause_ms(attempts: int, spread: float, retry_after_s: int | None) -> int:
    """After `attempts` (1 to 5) attempts have failed; `spread` is -1 to 1."""
    planned = PAUSES_S[attempts - 1] * (1 + JITTER * max(-1.0, min(1.0, spread)))
    asked = min(retry_after_s or 0, LONGEST_PAUSE_S)
    return int(max(planned, asked) * SECOND_MS)


@dataclass(frozen=True, slots=True)
class Settled:
    delivery: Delivery
    attempt: Attempt


def settle(delivery: Delivery, attempt: Attempt, reply: Reply, now_ms: int, spread: float) -> Settled:
    """Delivery and attempt after what the receiver said."""
    success = succeeded(reply)
    attempts = delivery.attempts + 1
    over = success or attempts >= MAX_ATTEMPTS or reply.status == GONE
    next_ms = None if over else now_ms + pause_ms(attempts, spread, reply.retry_after_s)
    state = DeliveryState.PENDING
    if over:
        state = DeliveryState.DELIVERED if success else DeliveryState.GIVEN_UP
    due_ms = delivery.due_ms if next_ms is None else next_ms
    error = None if success else failure(reply)
    return Settled(
        _owed_after(delivery, state, attempts, due_ms),
        _ended(attempt, now_ms, reply.status, error, success, reply.duration_ms, next_ms),
    )


def _owed_after(was: Delivery, state: DeliveryState, attempts: int, due_ms: int) -> Delivery:
    """By position: `replace` costs four times as much, and this runs once a delivery."""
    return Delivery(
        was.no, was.webhook_id, was.account_id, was.device_id, was.event_id, was.event_type, was.data,
        state, attempts, due_ms, was.claimed_until_ms, was.created_ms,
    )  # fmt: skip


def _ended(
    was: Attempt, at_ms: int, status: int | None, error: str | None, success: bool, took_ms: int, next_ms: int | None
) -> Attempt:
    return Attempt(
        was.delivery_id, was.delivery_no, was.webhook_id, was.event_id, was.event_type, was.device_id, was.number, was.created_ms,
        at_ms, status, error, success, took_ms, next_ms,
    )  # fmt: skip


def interrupt(delivery: Delivery, attempt: Attempt, now_ms: int) -> Settled:
    """A stop of the service cut the attempt: it does not count, and is made again as soon as there is somebody to make it."""
    return Settled(
        replace(delivery, due_ms=now_ms),
        replace(attempt, finished_ms=now_ms, error=INTERRUPTED, next_attempt_ms=now_ms),
    )


class Health(StrEnum):
    """What an attempt's end changes about its webhook."""

    SAME = "same"
    RECOVERED = "recovered"
    FAILING = "failing"
    GONE = "gone"
    DEAD = "dead"


def health(webhook: Webhook, reply: Reply, now_ms: int) -> Health:
    if succeeded(reply):
        return Health.SAME if webhook.failing_since_ms is None else Health.RECOVERED
    if reply.status == GONE and reply.error is None:
        return Health.GONE
    if webhook.failing_since_ms is None:
        return Health.FAILING
    return Health.DEAD if now_ms - webhook.failing_since_ms >= GIVE_UP_AFTER_MS else Health.SAME


def after_health(webhook: Webhook, change: Health, now_ms: int) -> Webhook:
    match change:
        case Health.RECOVERED:
            return replace(webhook, failing_since_ms=None)
        case Health.FAILING:
            return replace(webhook, failing_since_ms=now_ms)
        case Health.GONE:
            reason = "The receiver answered 410 Gone. Correct the url, then enable the webhook again."
            return disabled(webhook, reason, now_ms)
        case Health.DEAD:
            days = GIVE_UP_AFTER_MS // DAY_MS
            reason = f"No delivery has succeeded for {days} days. Repair the receiver, then enable the webhook again."
            return disabled(webhook, reason, now_ms)
        case Health.SAME:
            return webhook


def disabled(webhook: Webhook, reason: str | None, now_ms: int) -> Webhook:
    return replace(webhook, enabled=False, disabled_reason=reason, updated_ms=now_ms)


def enabled(webhook: Webhook, now_ms: int) -> Webhook:
    """A webhook that is enabled again begins with a clean slate."""
    return replace(webhook, enabled=True, disabled_reason=None, failing_since_ms=None, updated_ms=now_ms)


def check_enabled(webhook: Webhook) -> None:
    if not webhook.enabled:
        raise Conflict("This webhook is disabled and sends nothing. Enable it first.", code="WEBHOOK_DISABLED")


def as_logged(attempt: Attempt, now_ms: int) -> Attempt:
    """An attempt without an end that can no longer be under way was interrupted."""
    if attempt.finished_ms is not None or now_ms - attempt.created_ms <= (ANSWER_WITHIN_S * SECOND_MS) + LEASE_MS:
        return attempt
    return replace(attempt, error=INTERRUPTED)
