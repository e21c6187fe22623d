"""Sends again what a webhook did not get, after its receiver is repaired.

A recovery makes a delivery that was given up or cancelled PENDING again; the delivery worker then sends it like any other, with
up to six attempts, if the webhook is enabled and its key still sees the device. The next one follows when that one has ended. So
a receiver gets them in their order, and a backlog of any length costs the others one small transaction at a time.

The position of a recovery and the state of its delivery change in one transaction: a crash loses and repeats nothing. What was
delivered is no longer undelivered, so a recovery that is asked for twice sends nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import Clock, Now
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, JsonObject, event_of
from domain.kernel.ids import WebhookId
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.model import UNDELIVERED, Webhook, WebhookDelivery, WebhookDeliveryState, WebhookRecovery
from domain.webhooks.policy import require_enabled
from domain.webhooks.ports import WebhooksTx
from domain.webhooks.service import get_webhook

MAX_COUNTED = 10_000
RECOVERIES_PER_ROUND = 10
"""Each is one transaction; the next round begins with the webhook after the last one."""
MAX_FAILED_IN_ROW = 3
"""A receiver that fails so many deliveries one after the other, each with all its attempts, is not repaired."""


@service
class WebhookRecoveryService:
    """`wake_delivery` wakes the delivery worker, `wake` the worker of the recoveries, both after a commit."""

    uow: UnitOfWork[WebhooksTx]
    clock: Clock
    wake_delivery: Callable[[], None]
    wake: Callable[[], None]
    _last: WebhookId | None = field(default=None, init=False)

    async def start(self, caller: SessionCaller, webhook_id: str, since_ms: int) -> int:
        """Sends again what was not delivered of the events since `since_ms` (wall time, inclusive). Returns how many there are,
        counted up to MAX_COUNTED. A recovery that runs goes on, from the earlier of both times.

        Raises PermissionDenied, NotFound, Conflict `WEBHOOK_DISABLED`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            webhook = await get_webhook(tx, caller, webhook_id, for_update=True)
            require_enabled(webhook)
            recovery = WebhookRecovery(webhook.webhook_id, webhook.account_id, since_ms, 0, now_ms)
            count = await tx.deliveries.count_undelivered(recovery, MAX_COUNTED)
            running = await tx.recoveries.get_for_update(webhook.webhook_id)
            if running is not None:
                from_ms, after_no = min((running.from_ms, running.after_no), (since_ms, 0))
                recovery = replace(running, from_ms=from_ms, after_no=after_no, until_ms=now_ms, failed_in_row=0)
            elif not count:
                return 0
            await tx.recoveries.save(recovery)
            description = f"What the webhook to {webhook.host} did not get is sent again"
            named: JsonObject = {"webhookId": webhook.webhook_id, "since": since_ms, "deliveries": count}
            tx.emit(event_of(caller, "webhook_recovery_started", description, now_ms, **named))
            tx.after_commit(self.wake)
        return count

    async def run_once(self) -> bool:
        """Goes on with up to RECOVERIES_PER_ROUND recoveries. False when none could go on."""
        async with self.uow.read() as tx:
            ready = await tx.recoveries.list_ready(self._last, RECOVERIES_PER_ROUND)
        self._last = ready[-1].webhook_id if len(ready) == RECOVERIES_PER_ROUND else None
        for recovery in ready:
            await self._go_on(recovery.webhook_id)
        return bool(ready)

    async def has_any(self) -> bool:
        async with self.uow.read() as tx:
            return await tx.recoveries.has_any()

    async def _go_on(self, webhook_id: WebhookId) -> None:
        """One transaction: counts how the last delivery ended, and begins the next one."""
        now = Now.of(self.clock)
        async with self.uow.write(caller=None) as tx:
            recovery = await tx.recoveries.get_for_update(webhook_id)
            if recovery is None:
                return
            if recovery.current_no is not None:
                ended = await tx.deliveries.get(recovery.current_no)
                if ended is not None and ended.state is WebhookDeliveryState.PENDING:
                    return  # another instance has gone on with it
                recovery = _count(recovery, ended)
            webhook = await tx.webhooks.find(webhook_id)
            may_go_on = webhook is not None and webhook.enabled and recovery.failed_in_row < MAX_FAILED_IN_ROW
            following = await tx.deliveries.find_undelivered(recovery) if may_go_on else None
            if following is None:
                await tx.recoveries.delete(webhook_id)
                if webhook is not None:
                    tx.emit(_ended_event(webhook, recovery, now.wall_ms))
                return
            await tx.deliveries.revive(following.no, now.steady_ms)
            position = replace(recovery, from_ms=following.created_ms, after_no=following.no, current_no=following.no)
            await tx.recoveries.save(position)
            tx.after_commit(self.wake_delivery)


def _count(recovery: WebhookRecovery, ended: WebhookDelivery | None) -> WebhookRecovery:
    """`ended`: None when it has been deleted meanwhile."""
    if ended is None:
        return replace(recovery, current_no=None)
    if ended.state not in UNDELIVERED:
        return replace(recovery, current_no=None, sent=recovery.sent + 1, failed_in_row=0)
    in_row = recovery.failed_in_row + (ended.state is WebhookDeliveryState.GIVEN_UP)
    return replace(recovery, current_no=None, failed=recovery.failed + 1, failed_in_row=in_row)


def _ended_event(webhook: Webhook, recovery: WebhookRecovery, now_ms: int) -> DomainEvent:
    host, sent, failed = webhook.host, recovery.sent, recovery.failed
    if not webhook.enabled:
        description = f"The recovery of the webhook to {host} ended, as it was disabled: {sent} delivered, {failed} not"
    elif recovery.failed_in_row >= MAX_FAILED_IN_ROW:
        description = f"The recovery of the webhook to {host} ended, as its receiver fails: {sent} delivered, {failed} not"
    else:
        description = f"The recovery of the webhook to {host} is complete: {sent} delivered, {failed} not"
    return DomainEvent(
        account_id=webhook.account_id,
        kind="webhook_recovery_ended",
        description=description,
        at_ms=now_ms,
        source="service",
        data={"webhookId": webhook.webhook_id, "sent": recovery.sent, "failed": recovery.failed},
    )
