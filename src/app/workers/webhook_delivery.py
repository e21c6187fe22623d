"""Sends what webhooks are owed: a turn of the delivery service, its jobs to the courier, and their ends into the next turn.

While a turn's transaction runs, attempts end and deliveries fall due; all of that goes into the following one, so the batch grows
with the load by itself. Ends that could not be written, because the database does not answer, are kept and written later; what
is under way is bounded by the lanes, so that list is bounded too.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from app.workers.base_worker import MAX_SLEEP_S, DueWorker, seconds_until
from app.workers.wake_event import WakeEvent
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.ids import WebhookId
from domain.webhooks.delivery import AttemptResult, DeliveryBatch, DeliveryService, InFlightAttempt
from domain.webhooks.model import Webhook
from domain.webhooks.policy import is_success
from domain.webhooks.ports import NOT_SENT, Courier, WebhookRequest, WebhookResponse

CLAIM_RETRY_S = 0.25
"""What is due cannot be claimed now: its lane has enough, or another instance holds it. An end of an attempt wakes us anyway."""
DRAIN_TIMEOUT_S = 1.5
"""How long a stop waits for answers that are on their way."""
MAX_MANUAL_IN_FLIGHT = 64


class WebhookDeliveryWorker(DueWorker):
    name = "deliveries"

    def __init__(self, *, deliveries: DeliveryService, courier: Courier, clock: Clock, bell: WakeEvent) -> None:
        super().__init__(bell)
        self._deliveries = deliveries
        self._courier = courier
        self._clock = clock
        self._attempt_ids = itertools.count(1)
        self._in_flight: dict[int, InFlightAttempt] = {}
        self._manual_in_flight = 0
        self._ended_attempts: list[AttemptResult] = []
        self._idle = asyncio.Event()
        self.batches = 0
        self.succeeded = 0
        self.failed = 0
        self.cut_short = 0
        self.put_off = 0

    @property
    def under_way(self) -> int:
        return len(self._in_flight)

    async def run(self) -> None:
        self._courier.on_responses(self._on_responses)
        try:
            await super().run()
        finally:
            await self._drain()

    def send_manual(self, job: InFlightAttempt) -> None:
        """A ping or redelivery that has begun. When too many are under way it is left to its lease."""
        if self._manual_in_flight < MAX_MANUAL_IN_FLIGHT:
            self._manual_in_flight += 1
            self._start_attempts([job])

    def cancel_webhook(self, webhook: Webhook) -> None:
        """The webhook has changed: nothing signed, addressed or allowed by what it was goes out any more."""
        self._deliveries.on_webhook_changed(webhook)
        self._cancel([ticket for ticket, job in self._in_flight.items() if job.webhook.webhook_id == webhook.webhook_id])

    def refresh_webhook(self, webhook_id: WebhookId, now: Webhook | None) -> None:
        """Another instance has changed the webhook, or (None) deleted it. What began with what it is now goes on."""
        if now is not None:
            self._deliveries.on_webhook_changed(now)
        mine = [(ticket, job.webhook) for ticket, job in self._in_flight.items() if job.webhook.webhook_id == webhook_id]
        self._cancel([ticket for ticket, began in mine if now is None or not now.enabled or _has_changed(began, now)])

    async def run_once(self) -> float:
        taken = len(self._ended_attempts)
        turn = await self._deliveries.next_batch(self._ended_attempts[:taken])
        del self._ended_attempts[:taken]
        self.batches += 1
        self._start_attempts([job for job in turn.attempts if self._is_still_current(job)])
        return self._sleep_s(turn)

    def _sleep_s(self, turn: DeliveryBatch) -> float:
        if turn.has_more:
            return 0.0
        if turn.next_due_ms is None:
            return MAX_SLEEP_S
        if turn.next_due_ms <= turn.started_ms:
            return CLAIM_RETRY_S
        return seconds_until(turn.next_due_ms, self._clock.now_ms())

    def _is_still_current(self, job: InFlightAttempt) -> bool:
        """False, and written down as cut, when the webhook has changed since the turn's transaction."""
        if self._deliveries.is_current(job):
            return True
        self._note_end(job, None, self._clock.now_ms())
        return False

    def _start_attempts(self, jobs: list[InFlightAttempt]) -> None:
        posts: list[tuple[int, WebhookRequest]] = []
        made = self._deliveries.build_requests(jobs)
        now_ms = self._clock.now_ms()
        for job, post in made:
            if isinstance(post, WebhookResponse):
                self._note_end(job, post, now_ms)
                continue
            if now_ms > self._deliveries.send_before_ms(job):
                self._note_end(job, NOT_SENT, now_ms)
                continue
            ticket = next(self._attempt_ids)
            self._in_flight[ticket] = job
            posts.append((ticket, post))
        if posts:
            self._courier.send(posts)

    def _cancel(self, tickets: list[int]) -> None:
        self._courier.cancel(tickets)
        now_ms = self._clock.now_ms()
        for ticket in tickets:
            self._note_end(self._in_flight.pop(ticket), None, now_ms)

    def _on_responses(self, replies: Sequence[tuple[int, WebhookResponse]]) -> None:
        now_ms = self._clock.now_ms()
        for ticket, reply in replies:
            job = self._in_flight.pop(ticket, None)
            if job is not None:  # else it was cut in the same moment
                self._note_end(job, reply, now_ms)

    def _note_end(self, job: InFlightAttempt, reply: WebhookResponse | None, at_ms: int) -> None:
        sent = None if reply is NOT_SENT else reply
        if job.is_manual:
            self._manual_in_flight -= 1
        if reply is NOT_SENT:
            self.put_off += 1
        elif reply is None:
            self.cut_short += 1
        elif is_success(reply):
            self.succeeded += 1
        else:
            self.failed += 1
        self._ended_attempts.append(AttemptResult(job, reply, at_ms))
        self._deliveries.release(job, None if sent is None else sent.duration_ms / SECOND_MS)
        self._wake_event.set()
        if not self._in_flight:
            self._idle.set()

    async def _drain(self) -> None:
        """Let answers that are on their way arrive, cut the others, and write down how all of them ended."""
        self._idle.clear()
        if self._in_flight:
            try:
                async with asyncio.timeout(DRAIN_TIMEOUT_S):
                    await self._idle.wait()
            except TimeoutError:
                self._cancel(list(self._in_flight))
        try:
            await self._deliveries.stop(self._ended_attempts)
        except Exception as error:
            self._log.warning("the last deliveries are left to their leases", error=repr(error))
        else:
            self._ended_attempts.clear()


def _has_changed(began: Webhook, now: Webhook) -> bool:
    return (began.generation, began.url) != (now.generation, now.url)
