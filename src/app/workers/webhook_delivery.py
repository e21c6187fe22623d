"""Sends webhook deliveries: takes a batch from the delivery service, gives its attempts to the courier, and passes the results
on.

While the transaction of a batch runs, attempts end and deliveries fall due. The next batch takes all of them, so batches grow
with the load. Results that cannot be written, because the database does not answer, are kept and written later; the endpoint
queues bound the attempts in flight, and so the number of kept results.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import partial

import structlog

from app.workers.due import MAX_SLEEP_S, DueLoop, seconds_until
from domain.kernel.clock import SECOND_MS, Clock, Now
from domain.kernel.dataclasses import service
from domain.kernel.ids import WebhookId
from domain.webhooks.delivery import WebhookDeliveryBatch, WebhookDeliveryService
from domain.webhooks.model import Webhook
from domain.webhooks.policy import is_success
from domain.webhooks.ports import NOT_SENT, Courier, OutboundHttpRequest, OutboundHttpResponse
from domain.webhooks.requests import DeliveryAttemptResult, InFlightWebhookDelivery

CLAIM_RETRY_S = 0.25
"""Pause when due deliveries cannot be claimed: their endpoint queue is full, or another instance holds them. The end of an
attempt also wakes the worker."""
DRAIN_TIMEOUT_S = 1.5
"""How long a stop waits for responses."""
MAX_MANUAL_IN_FLIGHT = 64

log = structlog.get_logger("webhook_delivery")


@service
class WebhookDeliveryWorker(DueLoop):
    name = "webhook_delivery"

    deliveries: WebhookDeliveryService
    courier: Courier
    clock: Clock
    batches: int = field(default=0, init=False)
    succeeded: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)
    cancelled: int = field(default=0, init=False)
    postponed: int = field(default=0, init=False)
    next_due_ms: int | None = field(default=None, init=False)
    """When the earliest delivery is due that the last batch did not contain (steady time)."""

    _attempt_ids: Iterator[int] = field(default_factory=partial(itertools.count, 1), init=False)
    _in_flight: dict[int, InFlightWebhookDelivery] = field(default_factory=dict, init=False)
    _manual_in_flight: int = field(default=0, init=False)
    _ended_attempts: list[DeliveryAttemptResult] = field(default_factory=list, init=False)
    _idle: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    async def run(self) -> None:
        self.courier.on_responses(self._on_responses)
        try:
            await super().run()
        finally:
            await self._drain()

    def send_manual(self, attempt: InFlightWebhookDelivery) -> None:
        """Send a ping or a redelivery. With MAX_MANUAL_IN_FLIGHT in flight, it waits for the end of its lease instead."""
        if self._manual_in_flight < MAX_MANUAL_IN_FLIGHT:
            self._manual_in_flight += 1
            self._start_attempts([attempt])

    def cancel_webhook(self, webhook: Webhook) -> None:
        """Cancel all attempts of a webhook that has changed: they carry its old signature, address or permission."""
        self.deliveries.on_webhook_changed(webhook)
        self._cancel([ticket for ticket, one in self._in_flight.items() if one.webhook.webhook_id == webhook.webhook_id])

    def refresh_webhook(self, webhook_id: WebhookId, now: Webhook | None) -> None:
        """Another instance changed the webhook, or deleted it (`now` None). Cancel attempts of its earlier form only."""
        if now is not None:
            self.deliveries.on_webhook_changed(now)
        started = [(ticket, one.webhook) for ticket, one in self._in_flight.items() if one.webhook.webhook_id == webhook_id]
        self._cancel(
            [ticket for ticket, before in started if now is None or not now.enabled or before.generation != now.generation]
        )

    async def run_once(self) -> float:
        taken = len(self._ended_attempts)
        batch = await self.deliveries.next_batch(self._ended_attempts[:taken])
        del self._ended_attempts[:taken]
        self.batches += 1
        self.next_due_ms = batch.next_due_ms
        self._start_attempts([one for one in batch.attempts if self._is_still_current(one)])
        return self._sleep_s(batch)

    def _sleep_s(self, batch: WebhookDeliveryBatch) -> float:
        if batch.has_more:
            return 0.0
        if batch.next_due_ms is None:
            return MAX_SLEEP_S
        if batch.next_due_ms <= batch.started_ms:
            return CLAIM_RETRY_S
        return seconds_until(batch.next_due_ms, self.clock.steady_ms())

    def _is_still_current(self, attempt: InFlightWebhookDelivery) -> bool:
        """False when the webhook has changed since the transaction of the batch; the attempt then counts as cancelled."""
        if self.deliveries.is_current(attempt):
            return True
        self._record_attempt_end(attempt, None, Now.of(self.clock))
        return False

    def _start_attempts(self, attempts: list[InFlightWebhookDelivery]) -> None:
        requests: list[tuple[int, OutboundHttpRequest]] = []
        built = self.deliveries.requests.build(attempts)
        now = Now.of(self.clock)
        for attempt, request in built:
            if isinstance(request, OutboundHttpResponse):
                self._record_attempt_end(attempt, request, now)
            elif now.steady_ms > self.deliveries.send_before_ms(attempt):
                self._record_attempt_end(attempt, NOT_SENT, now)
            else:
                ticket = next(self._attempt_ids)
                self._in_flight[ticket] = attempt
                requests.append((ticket, request))
        if requests:
            self.courier.send(requests)

    def _cancel(self, tickets: list[int]) -> None:
        self.courier.cancel(tickets)
        now = Now.of(self.clock)
        for ticket in tickets:
            self._record_attempt_end(self._in_flight.pop(ticket), None, now)

    def _on_responses(self, responses: Sequence[tuple[int, OutboundHttpResponse]]) -> None:
        now = Now.of(self.clock)
        for ticket, response in responses:
            attempt = self._in_flight.pop(ticket, None)
            if attempt is not None:  # None: it was cancelled at the same moment
                self._record_attempt_end(attempt, response, now)

    def _record_attempt_end(self, attempt: InFlightWebhookDelivery, response: OutboundHttpResponse | None, at: Now) -> None:
        """`response`: None for a cancelled attempt, NOT_SENT for one whose time to send was over."""
        if attempt.is_manual:
            self._manual_in_flight -= 1
        if response is NOT_SENT:
            self.postponed += 1
        elif response is None:
            self.cancelled += 1
        elif is_success(response):
            self.succeeded += 1
        else:
            self.failed += 1
        self._ended_attempts.append(DeliveryAttemptResult(attempt, response, at))
        was_sent = response is not None and response is not NOT_SENT
        self.deliveries.release(attempt, response.duration_ms / SECOND_MS if was_sent and response else None)
        self.wake_event.set()
        if not self._in_flight:
            self._idle.set()

    async def _drain(self) -> None:
        """Wait for responses for a bounded time, cancel the other attempts, and store all results."""
        self._idle.clear()
        if self._in_flight:
            try:
                async with asyncio.timeout(DRAIN_TIMEOUT_S):
                    await self._idle.wait()
            except TimeoutError:
                self._cancel(list(self._in_flight))
        try:
            await self.deliveries.stop(self._ended_attempts)
        except Exception as error:
            log.warning("the last results could not be stored; their deliveries wait for the lease to end", error=repr(error))
        else:
            self._ended_attempts.clear()
