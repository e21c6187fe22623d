"""When a webhook is disabled: by a member, by 410 Gone, or after five days without a success."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from domain.kernel.clock import DAY_MS, WallAndSteadyTime
from domain.kernel.errors import Conflict
from domain.webhooks.attempt_outcome_and_retry_policy import HTTP_GONE, is_success
from domain.webhooks.model import DISABLE_AFTER_MS, Webhook
from domain.webhooks.ports import OutboundHttpResponse


class WebhookHealthChange(StrEnum):
    """What the end of an attempt changes about its webhook."""

    SAME = "same"
    RECOVERED = "recovered"
    FAILING = "failing"
    GONE = "gone"
    DEAD = "dead"


def health_change(webhook: Webhook, response: OutboundHttpResponse, steady_ms: int) -> WebhookHealthChange:
    if is_success(response):
        return WebhookHealthChange.SAME if webhook.failing_since_ms is None else WebhookHealthChange.RECOVERED
    if response.status == HTTP_GONE and response.error is None:
        return WebhookHealthChange.GONE
    if webhook.failing_since_ms is None:
        return WebhookHealthChange.FAILING
    return WebhookHealthChange.DEAD if steady_ms - webhook.failing_since_ms >= DISABLE_AFTER_MS else WebhookHealthChange.SAME


def apply_health_change(webhook: Webhook, change: WebhookHealthChange, at: WallAndSteadyTime) -> Webhook:
    match change:
        case WebhookHealthChange.RECOVERED:
            return replace(webhook, failing_since_ms=None)
        case WebhookHealthChange.FAILING:
            return replace(webhook, failing_since_ms=at.steady_ms)
        case WebhookHealthChange.GONE:
            reason = "The receiver answered 410 Gone. Correct the url, then enable the webhook again."
            return disable(webhook, reason, at.wall_ms)
        case WebhookHealthChange.DEAD:
            days = DISABLE_AFTER_MS // DAY_MS
            reason = f"No delivery has succeeded for {days} days. Repair the receiver, then enable the webhook again."
            return disable(webhook, reason, at.wall_ms)
        case WebhookHealthChange.SAME:
            return webhook


def disable(webhook: Webhook, reason: str | None, now_ms: int) -> Webhook:
    return replace(webhook, enabled=False, disabled_reason=reason, updated_ms=now_ms)


def enable(webhook: Webhook, now_ms: int) -> Webhook:
    """Enables the webhook and forgets its earlier failures."""
    return replace(webhook, enabled=True, disabled_reason=None, failing_since_ms=None, updated_ms=now_ms)


def require_enabled(webhook: Webhook) -> None:
    if not webhook.enabled:
        raise Conflict("This webhook is disabled and sends nothing. Enable it first.", code="WEBHOOK_DISABLED")
