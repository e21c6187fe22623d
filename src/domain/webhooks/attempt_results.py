"""Stores how attempts ended, and what that says about their webhooks: a success clears a failure, 410 or five days of failures
disable the webhook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from domain.kernel.domain_event import DomainEvent
from domain.webhooks.attempt_outcome_and_retry_policy import DeliveryWithAttempt, finish_attempt, interrupt_attempt
from domain.webhooks.in_flight_delivery import DeliveryAttemptResult
from domain.webhooks.model import Webhook
from domain.webhooks.ports import WebhookDeliveryTx
from domain.webhooks.recipients import WebhookRecipientCache
from domain.webhooks.webhook_health import WebhookHealthChange, apply_health_change, health_change


class RetryJitter(Protocol):
    """Port: where the spread of the retry pauses comes from."""

    def spread(self) -> float:
        """-1 to 1, uniformly distributed."""


class DeliveryAttemptResultWriter:
    def __init__(self, *, recipients: WebhookRecipientCache, jitter: RetryJitter, on_disabled: Callable[[Webhook], None]) -> None:
        """`on_disabled` is called after the commit that disables a webhook."""
        self._recipients = recipients
        self._jitter = jitter
        self._on_disabled = on_disabled

    async def store(self, tx: WebhookDeliveryTx, results: Sequence[DeliveryAttemptResult]) -> None:
        updates = [self._to_update(one) for one in results if not one.is_not_sent]
        if updates:
            await tx.deliveries.finish_many([update.delivery for update in updates])
            await tx.deliveries.finish_attempts([update.attempt for update in updates])
        not_sent = [one.in_flight for one in results if one.is_not_sent]
        if not_sent:
            await tx.deliveries.finish_many([attempt.delivery for attempt in not_sent])
            await tx.deliveries.delete_attempts([one.attempt.delivery_id for one in not_sent])
        for one in results:
            await self._update_health(tx, one)

    def _to_update(self, result: DeliveryAttemptResult) -> DeliveryWithAttempt:
        delivery, attempt = result.in_flight.delivery, result.in_flight.attempt
        if result.response is None:
            return interrupt_attempt(delivery, attempt, result.at)
        return finish_attempt(delivery, attempt, result.response, result.at, self._jitter.spread())

    async def _update_health(self, tx: WebhookDeliveryTx, result: DeliveryAttemptResult) -> None:
        """Reads the webhook again only when the response changes something about it."""
        sent_by = result.in_flight.webhook
        if (
            result.response is None
            or result.is_not_sent
            or health_change(sent_by, result.response, result.at.steady_ms) is WebhookHealthChange.SAME
        ):
            return
        webhook = await tx.webhooks.get_for_update(sent_by.account_id, sent_by.webhook_id)
        if webhook is None or not webhook.enabled or webhook.generation != sent_by.generation:
            return
        change = health_change(webhook, result.response, result.at.steady_ms)
        after = apply_health_change(webhook, change, result.at)
        if after == webhook:
            return
        await tx.webhooks.save(after)
        self._recipients.invalidate_until_commit(tx, webhook.account_id, result.at.wall_ms)
        if not after.enabled:
            await tx.emit(_disabled_event(after, result.at.wall_ms))
            tx.after_commit(lambda: self._on_disabled(after))


def _disabled_event(webhook: Webhook, now_ms: int) -> DomainEvent:
    return DomainEvent(
        account_id=webhook.account_id,
        kind="webhook_disabled",
        description=f"Webhook to {webhook.host} was disabled. {webhook.disabled_reason}",
        at_ms=now_ms,
        source="service",
        data={"webhookId": webhook.webhook_id, "reason": webhook.disabled_reason},
    )
