"""Claims due deliveries, starts their attempts, and stores how these ended, one batch at a time.

A batch is one transaction. It stores the results of finished attempts, claims due deliveries under a lease, checks again that
each webhook is enabled and its key still sees the device, and stores the attempts that begin. Requests are sent only after the
commit. So all attempts of a batch share the cost of one transaction, and a crash leaves at most attempts without an end and
leases that run out; only those are repeated.

Every write about a delivery is made under the lease it was claimed with, and nothing is sent that could not end within that
lease. A worker that was stopped past its lease therefore changes and sends nothing that another worker has claimed since. Leases
are not cleared at a start, because a row does not say which process holds its lease: the attempts of a killed process are
repeated half a minute later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from domain.kernel.clock import SECOND_MS, Clock, Now
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent
from domain.kernel.ids import AccountId, DeliveryId, DeviceId, IdAndSecretGenerator, IdPrefix, WebhookId
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.model import (
    CANCEL_BATCH_ROWS,
    LEASE_MS,
    RESPONSE_TIMEOUT_S,
    DeliveryAttempt,
    Webhook,
    WebhookDelivery,
    WebhookDeliveryState,
)
from domain.webhooks.policy import after_response, finish_attempt, interrupt_attempt
from domain.webhooks.ports import CreateSigner, WebhooksTx
from domain.webhooks.queues import EndpointQueues
from domain.webhooks.recipients import WebhookRecipientCache
from domain.webhooks.requests import DeliveryAttemptResult, InFlightWebhookDelivery, WebhookRequestBuilder


@dataclass(frozen=True, slots=True)
class WebhookDeliveryBatch:
    """`has_more`: the claim was full, so more deliveries are probably due already. Both times are steady time."""

    attempts: Sequence[InFlightWebhookDelivery]
    has_more: bool
    started_ms: int
    next_due_ms: int | None


@service
class WebhookDeliveryService:
    """`jitter`: -1 to 1, uniformly distributed; spreads the pauses before retries."""

    uow: UnitOfWork[WebhooksTx]
    clock: Clock
    ids: IdAndSecretGenerator
    vault: Vault
    create_signer: CreateSigner
    recipients: WebhookRecipientCache
    jitter: Callable[[], float]
    queues: EndpointQueues
    requests: WebhookRequestBuilder = field(init=False)
    _current_generations: dict[WebhookId, int] = field(default_factory=dict, init=False)
    _cancelling: dict[WebhookId, None] = field(default_factory=dict, init=False)
    """Disabled or deleted webhooks that may still have pending deliveries, cancelled in turn; nothing is claimed for them. A
    restart forgets them: their deliveries are then cancelled when they fall due."""

    def __post_init__(self) -> None:
        self.requests = WebhookRequestBuilder(vault=self.vault, create_signer=self.create_signer)

    async def next_batch(self, results: Sequence[DeliveryAttemptResult]) -> WebhookDeliveryBatch:
        """Raises Unavailable when the database does not answer; pass the same `results` again then."""
        now = Now.of(self.clock)
        claimed: Sequence[WebhookDelivery] = ()
        chosen: list[WebhookDelivery] = []
        attempts: list[InFlightWebhookDelivery] = []
        try:
            async with self.uow.write(caller=None) as tx:
                await self._store_results(tx, results)
                is_cancelling = await self._cancel_pending(tx)
                capacity = self.queues.claimable_count()
                if capacity:
                    busy = [*self.queues.list_full(), *self._cancelling]
                    claimed = await tx.deliveries.claim(now.steady_ms, now.steady_ms + LEASE_MS, capacity, busy=busy)
                    await tx.deliveries.finish_many(self.queues.enqueue(claimed))
                chosen += self.queues.start_next(now.steady_ms)
                attempts += await self._start_attempts(tx, chosen, now.wall_ms)
                next_due_ms = await tx.deliveries.next_due_ms()
        except BaseException:
            self.queues.remove(claimed)  # rolled back: no lease covers these
            self._release_all(chosen)
            raise
        started = {one.delivery.no for one in attempts}
        self._release_all(delivery for delivery in chosen if delivery.no not in started)
        has_more = is_cancelling or (bool(capacity) and len(claimed) >= capacity)
        return WebhookDeliveryBatch(attempts, has_more, now.steady_ms, next_due_ms)

    async def stop(self, results: Sequence[DeliveryAttemptResult]) -> None:
        """Stores the last results, and gives back every delivery that is claimed but has not begun."""
        async with self.uow.write(caller=None) as tx:
            await self._store_results(tx, results)
            await tx.deliveries.finish_many(self.queues.drain())

    def release(self, attempt: InFlightWebhookDelivery, duration_s: float | None) -> None:
        """Frees the slot of an attempt that has ended. `duration_s`: None when it was cancelled or never sent."""
        if not attempt.is_manual:
            self.queues.release(attempt.delivery.webhook_id, duration_s)

    def on_webhook_changed(self, webhook: Webhook) -> None:
        """The webhook was rotated, disabled, deleted or changed: attempts that began before are no longer current."""
        self._current_generations[webhook.webhook_id] = webhook.generation if webhook.enabled else webhook.generation + 1
        if webhook.enabled:
            self._cancelling.pop(webhook.webhook_id, None)
        else:
            self._cancelling[webhook.webhook_id] = None

    def is_current(self, attempt: InFlightWebhookDelivery) -> bool:
        """Whether the webhook has not changed since the attempt began."""
        return attempt.webhook.generation >= self._current_generations.get(attempt.webhook.webhook_id, 0)

    def send_before_ms(self, attempt: InFlightWebhookDelivery) -> float:
        """Steady time: an attempt that is sent by then ends within its lease. Check it right before sending: the process may have
        been suspended since the transaction of the batch, and another one may have claimed the delivery."""
        return (attempt.delivery.claimed_until_ms or 0) - RESPONSE_TIMEOUT_S * SECOND_MS

    async def find_authorized_webhook(self, tx: WebhooksTx, delivery: WebhookDelivery, now_ms: int) -> Webhook | None:
        """The delivery's webhook, if it is enabled and its key still sees the device."""
        return (await self._find_authorized_webhooks(tx, [delivery], now_ms))[0]

    def new_attempt(self, delivery: WebhookDelivery, webhook: Webhook, now_ms: int) -> InFlightWebhookDelivery:
        """The next attempt of a claimed delivery, with an id of its own."""
        attempt = DeliveryAttempt(
            delivery_id=DeliveryId(self.ids.new_id(IdPrefix.DELIVERY)),
            delivery_no=delivery.no,
            webhook_id=delivery.webhook_id,
            event_id=delivery.event_id,
            event_type=delivery.event_type,
            device_id=delivery.device_id,
            number=delivery.attempts + 1,
            created_ms=now_ms,
        )
        return InFlightWebhookDelivery(delivery, attempt, webhook)

    async def _store_results(self, tx: WebhooksTx, results: Sequence[DeliveryAttemptResult]) -> None:
        """How attempts ended, and what that says about their webhooks."""
        sent = [self._after_attempt(one) for one in results if not one.is_not_sent]
        if sent:
            await tx.deliveries.finish_many([delivery for delivery, _ in sent])
            await tx.deliveries.finish_attempts([attempt for _, attempt in sent])
        not_sent = [one.in_flight for one in results if one.is_not_sent]
        if not_sent:
            await tx.deliveries.finish_many([one.delivery for one in not_sent])
            await tx.deliveries.delete_attempts([one.attempt.delivery_id for one in not_sent])
        for one in results:
            await self._update_health(tx, one)

    def _after_attempt(self, result: DeliveryAttemptResult) -> tuple[WebhookDelivery, DeliveryAttempt]:
        delivery, attempt = result.in_flight.delivery, result.in_flight.attempt
        if result.response is None:
            return interrupt_attempt(delivery, attempt, result.at)
        return finish_attempt(delivery, attempt, result.response, result.at, self.jitter())

    async def _update_health(self, tx: WebhooksTx, result: DeliveryAttemptResult) -> None:
        """Reads the webhook again only when the response changes something about it."""
        sent_by, response, at = result.in_flight.webhook, result.response, result.at
        if response is None or result.is_not_sent or after_response(sent_by, response, at) is sent_by:
            return
        webhook = await tx.webhooks.get_for_update(sent_by.account_id, sent_by.webhook_id)
        if webhook is None or not webhook.enabled or webhook.generation != sent_by.generation:
            return
        after = after_response(webhook, response, at)
        if after is webhook:
            return
        await tx.webhooks.save(after)
        self.recipients.invalidate_until_commit(tx, webhook.account_id, at.wall_ms)
        if not after.enabled:
            tx.emit(_disabled_event(after, at.wall_ms))
            tx.after_commit(lambda: self.on_webhook_changed(after))

    async def _start_attempts(
        self, tx: WebhooksTx, chosen: Sequence[WebhookDelivery], now_ms: int
    ) -> list[InFlightWebhookDelivery]:
        attempts: list[InFlightWebhookDelivery] = []
        cancelled: list[WebhookDelivery] = []
        for delivery, webhook in zip(chosen, await self._find_authorized_webhooks(tx, chosen, now_ms), strict=True):
            if webhook is None:
                cancelled.append(replace(delivery, state=WebhookDeliveryState.CANCELLED))
            else:
                attempts.append(self.new_attempt(delivery, webhook, now_ms))
        if cancelled:
            await tx.deliveries.finish_many(cancelled)
        if attempts:
            await tx.deliveries.add_attempts([one.attempt for one in attempts])
        return attempts

    async def _find_authorized_webhooks(
        self, tx: WebhooksTx, deliveries: Sequence[WebhookDelivery], now_ms: int
    ) -> list[Webhook | None]:
        """One lookup for the whole batch, in the transaction in which its attempts begin."""
        devices_by_account: dict[AccountId, set[DeviceId]] = {}
        for delivery in deliveries:
            devices = devices_by_account.setdefault(delivery.account_id, set())
            if delivery.device_id is not None:
                devices.add(delivery.device_id)
        recipients = await self.recipients.load(tx, devices_by_account, now_ms)
        return [recipients[one.account_id].find_authorized(one.webhook_id, one.device_id, now_ms) for one in deliveries]

    async def _cancel_pending(self, tx: WebhooksTx) -> bool:
        """Cancels up to CANCEL_BATCH_ROWS deliveries of one disabled webhook; returns whether the next batch should follow at
        once. The deliveries of a deleted webhook are not changed: the cleanup deletes their rows."""
        webhook_id = next(iter(self._cancelling), None)
        if webhook_id is None:
            return False
        self._cancelling[webhook_id] = self._cancelling.pop(webhook_id)  # moved to the end, so that webhooks take turns
        exists = await tx.webhooks.find(webhook_id) is not None
        if exists:
            await tx.deliveries.cancel_pending(webhook_id, CANCEL_BATCH_ROWS)
        if not await tx.deliveries.has_pending(webhook_id):
            tx.after_commit(lambda: self._stop_cancelling(webhook_id))
            return len(self._cancelling) > 1
        return exists

    def _stop_cancelling(self, webhook_id: WebhookId) -> None:
        self._cancelling.pop(webhook_id, None)

    def _release_all(self, deliveries: Iterable[WebhookDelivery]) -> None:
        for delivery in deliveries:
            self.queues.release(delivery.webhook_id, None)


def _disabled_event(webhook: Webhook, now_ms: int) -> DomainEvent:
    return DomainEvent(
        account_id=webhook.account_id,
        kind="webhook_disabled",
        description=f"Webhook to {webhook.host} was disabled. {webhook.disabled_reason}",
        at_ms=now_ms,
        source="service",
        data={"webhookId": webhook.webhook_id, "reason": webhook.disabled_reason},
    )


CLEANUP_BATCH_ROWS = 250
"""About 5 ms of database time, attempts included."""


@service
class DeletedWebhookCleanup:
    """Deletes the rows that deleted webhooks leave behind: deliveries and attempts, possibly a million after a long outage.

    A webhook, or a key with its webhooks, is deleted in one small transaction; from then on it is invisible and nothing is sent
    to it. Its deliveries are deleted afterwards in batches, each in a transaction of its own, so that other transactions can
    write in between. A delivery is recognised by its missing webhook: a crash forgets nothing, and it does not matter who deleted
    the webhook."""

    uow: UnitOfWork[WebhooksTx]
    _position: tuple[WebhookId, int] | None = field(default=None, init=False)
    """The webhook being cleaned up, and the number of its last deleted delivery. Only a cursor: after a restart the search
    starts again."""

    async def run_once(self) -> bool:
        """Deletes one batch. False when there is nothing to delete, or other transactions have locked all of it."""
        while True:
            position = self._position or await self._find_next()
            if position is None:
                return False
            webhook_id, after = position
            async with self.uow.write(caller=None) as tx:
                deleted = await tx.deliveries.delete_batch_by_webhook(webhook_id, CLEANUP_BATCH_ROWS, after=after)
            self._position = (webhook_id, deleted[-1]) if len(deleted) == CLEANUP_BATCH_ROWS else None
            if deleted or not after:
                return bool(deleted)

    async def _find_next(self) -> tuple[WebhookId, int] | None:
        async with self.uow.read() as tx:
            webhook_id = await tx.deliveries.find_orphaned_webhook_id()
        return None if webhook_id is None else (webhook_id, 0)
