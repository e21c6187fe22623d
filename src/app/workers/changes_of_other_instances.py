"""Reacts to changes that other instances made, as this instance reads them in the event log.

The kind of an event decides which part must reload. Each part reads the current state from the database and not from the event,
so an event that arrives late or twice does no harm, and a thousand events for one row need one reload.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Protocol, TypeVar

from app.workers.schedules_and_device_plans import InProcessDevicePlanQueue
from app.workers.wake_event import WakeEvents
from app.workers.webhook_delivery import WebhookDeliveryWorker
from domain.approvals.ports import ApprovalWaiter, HasApprovals
from domain.commands.dispatch import CommandDispatchService
from domain.commands.ports import ExecutionWaiter, HasCommandExecutions
from domain.devices.credential_sync import CredentialSyncService
from domain.events.model import DEFAULT_TYPES, Event
from domain.kernel.dataclasses import service
from domain.kernel.ids import AccountId, ApprovalId, DeviceId, ExecutionId, WebhookId
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.service import RuleService
from domain.webhooks.ports import HasWebhooks

MAX_PENDING_RESULTS = 10_000
"""Results kept for waiting callers. Beyond that, a waiting caller reads the database when its time is up."""


Noted = TypeVar("Noted")


class OtherInstanceEventTx(HasApprovals, HasCommandExecutions, HasWebhooks, Protocol): ...


@service
class OtherInstanceEventHandler:
    uow: UnitOfWork[OtherInstanceEventTx]
    rules: RuleService
    credential_sync: CredentialSyncService
    dispatch: CommandDispatchService
    device_plans: InProcessDevicePlanQueue
    execution_waiter: ExecutionWaiter
    approval_waiter: ApprovalWaiter
    deliveries: WebhookDeliveryWorker
    wake_events: WakeEvents
    _changed_rules: set[DeviceId] = field(default_factory=set, init=False)
    _changed_credentials: set[DeviceId] = field(default_factory=set, init=False)
    _awaited_results: set[ExecutionId] = field(default_factory=set, init=False)
    _awaited_decisions: set[tuple[AccountId, ApprovalId]] = field(default_factory=set, init=False)
    _changed_webhooks: set[WebhookId] = field(default_factory=set, init=False)

    def enqueue(self, event: Event) -> None:
        """Note an event of another instance; `apply` does the work."""
        kind, _, _ = event.kind.partition("_")
        device_id = event.device_id
        if event.is_public:
            self.wake_events.deliveries.set()
        if event.kind in DEFAULT_TYPES:
            return  # of the device's own doing: nothing to reload
        if kind in ("command", "approval"):
            self._enqueue_command(event)
        elif kind == "schedule":
            self.wake_events.schedules.set()
            if device_id is not None:
                self.device_plans.enqueue(device_id)
        elif kind == "rule" and device_id is not None:
            self._changed_rules.add(device_id)
        elif kind in ("device", "credentials") and device_id is not None:
            self._changed_credentials.add(device_id)
            self.wake_events.device_cleanup.set()
        elif kind == "webhook":
            self._changed_webhooks.add(WebhookId(str(event.payload.get("webhookId"))))
            self.wake_events.deliveries.set()

    async def apply(self) -> None:
        """Reload everything noted. A part whose reload fails stays noted."""
        await _for_each(self._changed_rules, self.rules.reload_device)
        await _for_each(self._changed_credentials, self.credential_sync.sync)  # the device cleanup retries what the link refused
        await _for_each(self._changed_webhooks, self._refresh_webhook)
        await _for_each(self._awaited_results, self._notify_of_result)
        await _for_each(self._awaited_decisions, self._notify_of_decision)

    async def _refresh_webhook(self, webhook_id: WebhookId) -> None:
        async with self.uow.read() as tx:
            self.deliveries.refresh_webhook(webhook_id, await tx.webhooks.find(webhook_id))

    async def _notify_of_result(self, execution_id: ExecutionId) -> None:
        async with self.uow.read(one_statement=True) as tx:
            execution = await tx.executions.find(execution_id)
        if execution is not None:
            self.execution_waiter.notify(execution)

    async def _notify_of_decision(self, approval_key: tuple[AccountId, ApprovalId]) -> None:
        async with self.uow.read() as tx:
            approval = await tx.approvals.get(*approval_key)
        if approval is not None:
            self.approval_waiter.notify(approval)

    def _enqueue_command(self, event: Event) -> None:
        self.wake_events.approvals.set()
        self.dispatch.rescan()
        self.wake_events.dispatch.set()
        approval_id = ApprovalId(str(event.payload.get("approvalId")))
        if event.kind == "approval_decided" and self.approval_waiter.has_waiters(approval_id):
            self._awaited_decisions.add((event.account_id, approval_id))
        execution_id = event.payload.get("executionId")
        if (
            event.kind != "command_result"
            or not isinstance(execution_id, str)
            or len(self._awaited_results) >= MAX_PENDING_RESULTS
        ):
            return
        if self.execution_waiter.has_waiters(ExecutionId(execution_id)):
            self._awaited_results.add(ExecutionId(execution_id))


async def _for_each(noted: set[Noted], work: Callable[[Noted], Awaitable[object]]) -> None:
    """Do the work for each, and forget it afterwards; others may be noted meanwhile."""
    while noted:
        one = next(iter(noted))
        await work(one)
        noted.discard(one)
