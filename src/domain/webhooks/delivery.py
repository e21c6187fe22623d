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
from domain.kernel.errors import DomainError
from domain.kernel.facts import Fact
from domain.kernel.ids import AccountId, DeliveryId, DeviceId, IdSource, Prefix, WebhookId
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks import policy
from domain.webhooks.lanes import Lanes
from domain.webhooks.model import ANSWER_WITHIN_S, CALL_OFF, Attempt, Delivery, DeliveryState, Webhook
from domain.webhooks.policy import LEASE_MS, Health, Settled
from domain.webhooks.ports import UNSENT, Post, Reply, WebhooksTx
from domain.webhooks.scope import Scopes
from domain.webhooks.signing import Signer, SignerFactory

SIGNERS_KEPT = 1_024


class Jitter(Protocol):
    """Port: where the spread of the pauses comes from."""

    def spread(self) -> float:
        """-1 to 1, evenly."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """An attempt that has begun. `by_hand`: a ping or redelivery, which goes past the lanes."""

    delivery: Delivery
    attempt: Attempt
    webhook: Webhook
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """`reply` None: cut by a stop or because the webhook has changed meanwhile; UNSENT: it never began."""

    job: Job
    reply: Reply | None
    at_ms: int

    @property
    def unsent(self) -> bool:
        return self.reply is UNSENT


@dataclass(frozen=True, slots=True)
class Turn:
    """`more`: the claim was full, so there is probably more that is due already."""

    jobs: Sequence[Job]
    more: bool
    began_ms: int
    next_due_ms: int | None


class DeliveryService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[WebhooksTx],
        clock: Clock,
        ids: IdSource,
        vault: Vault,
        signers: SignerFactory,
        scopes: Scopes,
        jitter: Jitter,
        lanes: Lanes,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._vault = vault
        self._signers = signers
        self._scopes = scopes
        self._jitter = jitter
        self._lanes = lanes
        self._kept: dict[tuple[WebhookId, int], Signer] = {}
        self._changed: dict[WebhookId, int] = {}
        self._called_off: dict[WebhookId, None] = {}
        """Disabled or deleted ones to which something may still be owed, in turn; nothing is claimed for them. Forgotten by a
        restart: then it is called off when it is due."""

    async def turn(self, ended: Sequence[Ended]) -> Turn:
        """Raises Unavailable when the database does not answer; `ended` must then be given again."""
        now_ms = self._clock.now_ms()
        claimed: Sequence[Delivery] = ()
        begun: list[Delivery] = []
        jobs: list[Job] = []
        try:
            async with self._uow.write() as tx:
                await self._settle(tx, ended)
                calling_off = await self._call_off(tx)
                room = self._lanes.room()
                if room:
                    busy = [*self._lanes.busy(), *self._called_off]
                    claimed = await tx.deliveries.claim(now_ms, now_ms + LEASE_MS, room, busy=busy)
                    back = self._lanes.offer(claimed)
                    await tx.deliveries.finish_all(back)
                begun += self._lanes.next(now_ms)
                jobs += await self._begin(tx, begun, now_ms)
                next_due_ms = await tx.deliveries.next_due_ms()
        except BaseException:
            self._lanes.withdraw(claimed)  # rolled back: these are under no lease
            self._leave(begun)
            raise
        started = {job.delivery.no for job in jobs}
        self._leave(delivery for delivery in begun if delivery.no not in started)
        more = calling_off or (bool(room) and len(claimed) >= room)
        return Turn(jobs, more, now_ms, next_due_ms)

    async def stop(self, ended: Sequence[Ended]) -> None:
        """The last words: how attempts ended, and everything claimed but not begun given back."""
        async with self._uow.write() as tx:
            await self._settle(tx, ended)
            left = self._lanes.drain()
            await tx.deliveries.finish_all(left)

    def over(self, job: Job, duration_s: float | None) -> None:
        """The job's place is free again."""
        if not job.by_hand:
            self._lanes.done(job.delivery.webhook_id, duration_s)

    def on_changed(self, webhook: Webhook) -> None:
        """The webhook was rotated, disabled, deleted or moved: attempts that began before must not be sent any more."""
        self._changed[webhook.webhook_id] = webhook.generation if webhook.enabled else webhook.generation + 1
        if webhook.enabled:
            self._called_off.pop(webhook.webhook_id, None)
        else:
            self._called_off[webhook.webhook_id] = None

    def is_current(self, job: Job) -> bool:
        """Nothing has changed its webhook since it began."""
        return job.webhook.generation >= self._changed.get(job.webhook.webhook_id, 0)

    def sendable_until_ms(self, job: Job) -> float:
        """What is sent by then ends within its lease. To be looked at right before sending: the process may have stood still
        since the transaction in which the attempt began, and another one have claimed the delivery."""
        return (job.delivery.claimed_until_ms or 0) - ANSWER_WITHIN_S * SECOND_MS

    def posts(self, jobs: Sequence[Job]) -> list[tuple[Job, Post | Reply]]:
        """What to send, signed with the secret of this moment; a Reply where it cannot even be signed."""
        made: list[tuple[Job, Post | Reply]] = []
        of_webhook: dict[WebhookId, list[Job]] = {}
        for job in jobs:
            of_webhook.setdefault(job.webhook.webhook_id, []).append(job)
        for mine in of_webhook.values():
            try:
                signer = self._signer(mine[0].webhook)
            except DomainError as error:
                made += [(job, Reply(None, error.message, b"", 0)) for job in mine]
                continue
            bodies = [policy.envelope(job.attempt, job.delivery.data) for job in mine]
            signatures = signer.sign_batch(
                [(j.attempt.event_id, j.attempt.created_ms // SECOND_MS, b) for j, b in zip(mine, bodies, strict=True)]
            )
            for job, body, (service, standard) in zip(mine, bodies, signatures, strict=True):
                headers = policy.headers(job.attempt, service, standard)
                lane = "" if job.by_hand else job.webhook.webhook_id
                made.append((job, Post(job.webhook.url, headers, body, ANSWER_WITHIN_S, lane)))
        return made

    async def admitted(self, tx: WebhooksTx, delivery: Delivery, now_ms: int) -> Webhook | None:
        """The delivery's webhook, if it is enabled and its key still sees the device."""
        return (await self._admitted(tx, [delivery], now_ms))[0]

    async def _admitted(self, tx: WebhooksTx, deliveries: Sequence[Delivery], now_ms: int) -> list[Webhook | None]:
        """All of a turn for the price of one: the check is made once, in the transaction in which their attempts begin."""
        places: dict[AccountId, set[DeviceId]] = {}
        for delivery in deliveries:
            devices = places.setdefault(delivery.account_id, set())
            if delivery.device_id is not None:
                devices.add(delivery.device_id)
        scopes = await self._scopes.of(tx, places, now_ms)
        return [scopes[one.account_id].still(one.webhook_id, one.device_id, now_ms) for one in deliveries]

    def begin(self, delivery: Delivery, webhook: Webhook, now_ms: int) -> Job:
        """The next attempt of a claimed delivery, with an id of its own."""
        attempt = Attempt(
            delivery_id=DeliveryId(self._ids.new(Prefix.DELIVERY)),
            delivery_no=delivery.no,
            webhook_id=delivery.webhook_id,
            event_id=delivery.event_id,
            event_type=delivery.event_type,
            device_id=delivery.device_id,
            number=delivery.attempts + 1,
            created_ms=now_ms,
        )
        return Job(delivery, attempt, webhook)

    async def _begin(self, tx: WebhooksTx, begun: Sequence[Delivery], now_ms: int) -> list[Job]:
        jobs: list[Job] = []
        dropped: list[Delivery] = []
        for delivery, webhook in zip(begun, await self._admitted(tx, begun, now_ms), strict=True):
            if webhook is None:
                dropped.append(replace(delivery, state=DeliveryState.CANCELLED))
            else:
                jobs.append(self.begin(delivery, webhook, now_ms))
        if dropped:
            await tx.deliveries.finish_all(dropped)
        if jobs:
            await tx.deliveries.start_attempt([job.attempt for job in jobs])
        return jobs

    async def _settle(self, tx: WebhooksTx, ended: Sequence[Ended]) -> None:
        results = [self._settled(one) for one in ended if not one.unsent]
        if results:
            await tx.deliveries.finish_all([result.delivery for result in results])
            await tx.deliveries.finish_attempt([result.attempt for result in results])
        unsent = [one.job for one in ended if one.unsent]
        if unsent:
            await tx.deliveries.finish_all([job.delivery for job in unsent])
            await tx.deliveries.drop_attempts([job.attempt.delivery_id for job in unsent])
        for one in ended:
            await self._heed(tx, one)

    async def _call_off(self, tx: WebhooksTx) -> bool:
        """A step for one of those that were called off; whether another should follow at once. What is owed to a deleted one is
        not touched: its rows are taken away (`leftovers`)."""
        webhook_id = next(iter(self._called_off), None)
        if webhook_id is None:
            return False
        self._called_off[webhook_id] = self._called_off.pop(webhook_id)  # to the end: it is the next one's turn
        exists = await tx.webhooks.find(webhook_id) is not None
        if exists:
            await tx.deliveries.cancel_of(webhook_id, CALL_OFF)
        if not await tx.deliveries.owes(webhook_id):
            tx.after_commit(lambda: self._forget_call(webhook_id))
            return len(self._called_off) > 1
        return exists

    def _forget_call(self, webhook_id: WebhookId) -> None:
        self._called_off.pop(webhook_id, None)

    def _settled(self, ended: Ended) -> Settled:
        job = ended.job
        if ended.reply is None:
            return policy.interrupt(job.delivery, job.attempt, ended.at_ms)
        return policy.settle(job.delivery, job.attempt, ended.reply, ended.at_ms, self._jitter.spread())

    async def _heed(self, tx: WebhooksTx, ended: Ended) -> None:
        """What the answer says about the webhook itself; looked up anew only when it says something."""
        if ended.reply is None or ended.unsent or policy.health(ended.job.webhook, ended.reply, ended.at_ms) is Health.SAME:
            return
        webhook = await tx.webhooks.held(ended.job.webhook.account_id, ended.job.webhook.webhook_id)
        if webhook is None or not webhook.enabled or webhook.url != ended.job.webhook.url:
            return
        change = policy.health(webhook, ended.reply, ended.at_ms)
        after = policy.after_health(webhook, change, ended.at_ms)
        if after == webhook:
            return
        await tx.webhooks.save(after)
        self._scopes.changing(tx, webhook.account_id, ended.at_ms)
        if not after.enabled:
            await tx.record(_disabled_fact(after, ended.at_ms))
            tx.after_commit(lambda: self.on_changed(after))

    def _signer(self, webhook: Webhook) -> Signer:
        key = (webhook.webhook_id, webhook.generation)
        signer = self._kept.get(key)
        if signer is None:
            if len(self._kept) >= SIGNERS_KEPT:
                del self._kept[next(iter(self._kept))]
            signer = self._signers.signer(self._vault.open(webhook.sealed_secret, webhook.webhook_id))
            self._kept[key] = signer
        return signer

    def _leave(self, begun: Iterable[Delivery]) -> None:
        for delivery in begun:
            self._lanes.done(delivery.webhook_id, None)


def _disabled_fact(webhook: Webhook, now_ms: int) -> Fact:
    return Fact(
        account_id=webhook.account_id,
        kind="webhook_disabled",
        description=f"Webhook to {webhook.host} was disabled. {webhook.disabled_reason}",
        at_ms=now_ms,
        source="service",
        data={"webhookId": webhook.webhook_id, "reason": webhook.disabled_reason},
    )
