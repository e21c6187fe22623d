"""Delivering what is owed, a turn at a time.

A turn is one transaction: it writes how the attempts of the last turn ended, claims what is due under a lease, checks anew that
the webhook is enabled and its key still sees the device, and writes down the attempts that begin. Only then is anything sent.
So a crash leaves an attempt without an end in the log and a lease that runs out, and repeats at most what was under way; the
cost of the database is shared by all attempts of a turn. What is written about a delivery is written under the lease it was
claimed with, and nothing is sent that could not end within it: a worker that stood still past its lease changes and sends nothing
that another has claimed meanwhile. Leases are not taken back at a start, because rows do not say whose
they are: what a killed process had in hand is delivered half a minute later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from domain.devices.ports import Vault
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.domain_events import DomainEvent
from domain.kernel.errors import DomainError
from domain.kernel.ids import AccountId, DeliveryId, DeviceId, IdGenerator, IdPrefix, WebhookId
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks import policy
from domain.webhooks.model import CANCEL_BATCH_ROWS, RESPONSE_TIMEOUT_S, Attempt, Delivery, DeliveryState, Webhook
from domain.webhooks.policy import LEASE_MS, DeliveryUpdate, HealthChange
from domain.webhooks.ports import NOT_SENT, DeliveryTx, WebhookRequest, WebhookResponse
from domain.webhooks.recipients import RecipientCache
from domain.webhooks.send_queues import EndpointQueues
from domain.webhooks.signing import Signer, SignerFactory

MAX_CACHED_SIGNERS = 1_024


class RetryJitter(Protocol):
    """Port: where the spread of the pauses comes from."""

    def spread(self) -> float:
        """-1 to 1, evenly."""
        ...


@dataclass(frozen=True, slots=True)
class InFlightAttempt:
    """An attempt that has begun. `by_hand`: a ping or redelivery, which goes past the lanes."""

    delivery: Delivery
    attempt: Attempt
    webhook: Webhook
    is_manual: bool = False


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """`reply` None: cut by a stop or because the webhook has changed meanwhile; UNSENT: it never began."""

    in_flight: InFlightAttempt
    response: WebhookResponse | None
    at_ms: int

    @property
    def is_not_sent(self) -> bool:
        return self.response is NOT_SENT


@dataclass(frozen=True, slots=True)
class DeliveryBatch:
    """`more`: the claim was full, so there is probably more that is due already."""

    attempts: Sequence[InFlightAttempt]
    has_more: bool
    started_ms: int
    next_due_ms: int | None


class DeliveryService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[DeliveryTx],
        clock: Clock,
        ids: IdGenerator,
        vault: Vault,
        signers: SignerFactory,
        scopes: RecipientCache,
        jitter: RetryJitter,
        lanes: EndpointQueues,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._vault = vault
        self._signer_factory = signers
        self._recipients = scopes
        self._jitter = jitter
        self._queues = lanes
        self._signer_cache: dict[tuple[WebhookId, int], Signer] = {}
        self._current_generations: dict[WebhookId, int] = {}
        self._cancelling: dict[WebhookId, None] = {}
        """Disabled or deleted ones to which something may still be owed, in turn; nothing is claimed for them. Forgotten by a
        restart: then it is called off when it is due."""

    async def next_batch(self, ended: Sequence[AttemptResult]) -> DeliveryBatch:
        """Raises Unavailable when the database does not answer; `ended` must then be given again."""
        now_ms = self._clock.now_ms()
        claimed: Sequence[Delivery] = ()
        begun: list[Delivery] = []
        jobs: list[InFlightAttempt] = []
        try:
            async with self._uow.write(caller=None) as tx:
                await self._store_results(tx, ended)
                calling_off = await self._cancel_pending(tx)
                room = self._queues.claimable_count()
                if room:
                    busy = [*self._queues.list_full(), *self._cancelling]
                    claimed = await tx.deliveries.claim(now_ms, now_ms + LEASE_MS, room, busy=busy)
                    back = self._queues.enqueue(claimed)
                    await tx.deliveries.finish_many(back)
                begun += self._queues.start_next(now_ms)
                jobs += await self._start_attempts(tx, begun, now_ms)
                next_due_ms = await tx.deliveries.next_due_ms()
        except BaseException:
            self._queues.remove(claimed)  # rolled back: these are under no lease
            self._release_unstarted(begun)
            raise
        started = {job.delivery.no for job in jobs}
        self._release_unstarted(delivery for delivery in begun if delivery.no not in started)
        more = calling_off or (bool(room) and len(claimed) >= room)
        return DeliveryBatch(jobs, more, now_ms, next_due_ms)

    async def stop(self, ended: Sequence[AttemptResult]) -> None:
        """The last words: how attempts ended, and everything claimed but not begun given back."""
        async with self._uow.write(caller=None) as tx:
            await self._store_results(tx, ended)
            left = self._queues.drain()
            await tx.deliveries.finish_many(left)

    def release(self, job: InFlightAttempt, duration_s: float | None) -> None:
        """The job's place is free again."""
        if not job.is_manual:
            self._queues.release(job.delivery.webhook_id, duration_s)

    def on_webhook_changed(self, webhook: Webhook) -> None:
        """The webhook was rotated, disabled, deleted or moved: attempts that began before must not be sent any more."""
        self._current_generations[webhook.webhook_id] = webhook.generation if webhook.enabled else webhook.generation + 1
        if webhook.enabled:
            self._cancelling.pop(webhook.webhook_id, None)
        else:
            self._cancelling[webhook.webhook_id] = None

    def is_current(self, job: InFlightAttempt) -> bool:
        """Nothing has changed its webhook since it began."""
        return job.webhook.generation >= self._current_generations.get(job.webhook.webhook_id, 0)

    def send_before_ms(self, job: InFlightAttempt) -> float:
        """What is sent by then ends within its lease. To be looked at right before sending: the process may have stood still
        since the transaction in which the attempt began, and another one have claimed the delivery."""
        return (job.delivery.claimed_until_ms or 0) - RESPONSE_TIMEOUT_S * SECOND_MS

    def build_requests(self, jobs: Sequence[InFlightAttempt]) -> list[tuple[InFlightAttempt, WebhookRequest | WebhookResponse]]:
        """What to send, signed with the secret of this moment; a Reply where it cannot even be signed."""
        made: list[tuple[InFlightAttempt, WebhookRequest | WebhookResponse]] = []
        of_webhook: dict[WebhookId, list[InFlightAttempt]] = {}
        for job in jobs:
            of_webhook.setdefault(job.webhook.webhook_id, []).append(job)
        for mine in of_webhook.values():
            try:
                signer = self._get_signer(mine[0].webhook)
            except DomainError as error:
                made += [(job, WebhookResponse(None, error.message, b"", 0)) for job in mine]
                continue
            bodies = [policy.build_body(job.attempt, job.delivery.data) for job in mine]
            signatures = signer.sign_batch(
                [(j.attempt.event_id, j.attempt.created_ms // SECOND_MS, b) for j, b in zip(mine, bodies, strict=True)]
            )
            for job, body, (service, standard) in zip(mine, bodies, signatures, strict=True):
                headers = policy.build_headers(job.attempt, service, standard)
                lane = "" if job.is_manual else job.webhook.webhook_id
                made.append((job, WebhookRequest(job.webhook.url, headers, body, RESPONSE_TIMEOUT_S, lane)))
        return made

    async def find_authorized_webhook(self, tx: DeliveryTx, delivery: Delivery, now_ms: int) -> Webhook | None:
        """The delivery's webhook, if it is enabled and its key still sees the device."""
        return (await self._find_authorized_webhooks(tx, [delivery], now_ms))[0]

    async def _find_authorized_webhooks(
        self, tx: DeliveryTx, deliveries: Sequence[Delivery], now_ms: int
    ) -> list[Webhook | None]:
        """All of a turn for the price of one: the check is made once, in the transaction in which their attempts begin."""
        places: dict[AccountId, set[DeviceId]] = {}
        for delivery in deliveries:
            devices = places.setdefault(delivery.account_id, set())
            if delivery.device_id is not None:
                devices.add(delivery.device_id)
        scopes = await self._recipients.load(tx, places, now_ms)
        return [scopes[one.account_id].find_authorized(one.webhook_id, one.device_id, now_ms) for one in deliveries]

    def new_attempt(self, delivery: Delivery, webhook: Webhook, now_ms: int) -> InFlightAttempt:
        """The next attempt of a claimed delivery, with an id of its own."""
        attempt = Attempt(
            delivery_id=DeliveryId(self._ids.new_id(IdPrefix.DELIVERY)),
            delivery_no=delivery.no,
            webhook_id=delivery.webhook_id,
            event_id=delivery.event_id,
            event_type=delivery.event_type,
            device_id=delivery.device_id,
            number=delivery.attempts + 1,
            created_ms=now_ms,
        )
        return InFlightAttempt(delivery, attempt, webhook)

    async def _start_attempts(self, tx: DeliveryTx, begun: Sequence[Delivery], now_ms: int) -> list[InFlightAttempt]:
        jobs: list[InFlightAttempt] = []
        dropped: list[Delivery] = []
        for delivery, webhook in zip(begun, await self._find_authorized_webhooks(tx, begun, now_ms), strict=True):
            if webhook is None:
                dropped.append(replace(delivery, state=DeliveryState.CANCELLED))
            else:
                jobs.append(self.new_attempt(delivery, webhook, now_ms))
        if dropped:
            await tx.deliveries.finish_many(dropped)
        if jobs:
            await tx.deliveries.add_attempts([job.attempt for job in jobs])
        return jobs

    async def _store_results(self, tx: DeliveryTx, ended: Sequence[AttemptResult]) -> None:
        results = [self._to_update(one) for one in ended if not one.is_not_sent]
        if results:
            await tx.deliveries.finish_many([result.delivery for result in results])
            await tx.deliveries.finish_attempts([result.attempt for result in results])
        unsent = [one.in_flight for one in ended if one.is_not_sent]
        if unsent:
            await tx.deliveries.finish_many([job.delivery for job in unsent])
            await tx.deliveries.delete_attempts([job.attempt.delivery_id for job in unsent])
        for one in ended:
            await self._update_health(tx, one)

    async def _cancel_pending(self, tx: DeliveryTx) -> bool:
        """A step for one of those that were called off; whether another should follow at once. What is owed to a deleted one is
        not touched: its rows are taken away (`leftovers`)."""
        webhook_id = next(iter(self._cancelling), None)
        if webhook_id is None:
            return False
        self._cancelling[webhook_id] = self._cancelling.pop(webhook_id)  # to the end: it is the next one's turn
        exists = await tx.webhooks.find(webhook_id) is not None
        if exists:
            await tx.deliveries.cancel_pending(webhook_id, CANCEL_BATCH_ROWS)
        if not await tx.deliveries.has_pending(webhook_id):
            tx.after_commit(lambda: self._stop_cancelling(webhook_id))
            return len(self._cancelling) > 1
        return exists

    def _stop_cancelling(self, webhook_id: WebhookId) -> None:
        self._cancelling.pop(webhook_id, None)

    def _to_update(self, ended: AttemptResult) -> DeliveryUpdate:
        job = ended.in_flight
        if ended.response is None:
            return policy.interrupt_attempt(job.delivery, job.attempt, ended.at_ms)
        return policy.finish_attempt(job.delivery, job.attempt, ended.response, ended.at_ms, self._jitter.spread())

    async def _update_health(self, tx: DeliveryTx, ended: AttemptResult) -> None:
        """What the answer says about the webhook itself; looked up anew only when it says something."""
        if (
            ended.response is None
            or ended.is_not_sent
            or policy.health_change(ended.in_flight.webhook, ended.response, ended.at_ms) is HealthChange.SAME
        ):
            return
        webhook = await tx.webhooks.get_for_update(ended.in_flight.webhook.account_id, ended.in_flight.webhook.webhook_id)
        if webhook is None or not webhook.enabled or webhook.url != ended.in_flight.webhook.url:
            return
        change = policy.health_change(webhook, ended.response, ended.at_ms)
        after = policy.apply_health_change(webhook, change, ended.at_ms)
        if after == webhook:
            return
        await tx.webhooks.save(after)
        self._recipients.invalidate_until_commit(tx, webhook.account_id, ended.at_ms)
        if not after.enabled:
            await tx.emit(_disabled_event(after, ended.at_ms))
            tx.after_commit(lambda: self.on_webhook_changed(after))

    def _get_signer(self, webhook: Webhook) -> Signer:
        key = (webhook.webhook_id, webhook.generation)
        signer = self._signer_cache.get(key)
        if signer is None:
            if len(self._signer_cache) >= MAX_CACHED_SIGNERS:
                del self._signer_cache[next(iter(self._signer_cache))]
            signer = self._signer_factory.create_signer(self._vault.open(webhook.sealed_secret, webhook.webhook_id))
            self._signer_cache[key] = signer
        return signer

    def _release_unstarted(self, begun: Iterable[Delivery]) -> None:
        for delivery in begun:
            self._queues.release(delivery.webhook_id, None)


def _disabled_event(webhook: Webhook, now_ms: int) -> DomainEvent:
    return DomainEvent(
        account_id=webhook.account_id,
        kind="webhook_disabled",
        description=f"Webhook to {webhook.host} was disabled. {webhook.disabled_reason}",
        at_ms=now_ms,
        source="service",
        data={"webhookId": webhook.webhook_id, "reason": webhook.disabled_reason},
    )
