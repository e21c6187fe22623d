"""What an instance does because others use the same database: it follows their events, takes the devices over when their holder
is gone, and lets no device in while it cannot prove that the devices are its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, TypeVar

import structlog

from adapters.feed_hub import LogOrderedFeedPublisher
from app.runtime.supervisor import FatalWorkerError
from app.workers.due import MAX_SLEEP_S, DueLoop, WakeEvents
from app.workers.schedules import InProcessDevicePlanQueue
from app.workers.webhook_delivery import WebhookDeliveryWorker
from domain.approvals.ports import ApprovalWaiter
from domain.commands.dispatch import CommandDispatchService
from domain.commands.ports import CommandsTx, ExecutionWaiter
from domain.devices.credential_sync import CredentialSyncService
from domain.devices.link import DeviceBrokerLink
from domain.events.cursors import EventLogCursor
from domain.events.model import DEFAULT_TYPES, Event
from domain.events.ports import EventsTx
from domain.kernel.backoff import RETRY_BACKOFF, Backoff
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.kernel.ids import AccountId, ApprovalId, DeviceId, ExecutionId, WebhookId
from domain.kernel.life import DatabaseLife
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.service import RuleService

if TYPE_CHECKING:
    from adapters.storage.sql.postgres.leadership import PostgresCoordinationConnection

PAGE_SIZE = 500
POLL_INTERVAL_S = 1.0
ADVANCE_AFTER = 200
"""After so many events the idle writers are advanced: the follower then skips fewer events that it has read already."""
MAX_PENDING_RESULTS = 10_000
"""Results kept for waiting callers. Beyond that, a waiting caller reads the database when its time is up."""
LEASE_POLL_INTERVAL_S = 0.1

Noted = TypeVar("Noted")


@service
class EventLogFollower(DueLoop):
    """Follows the event log that several instances write to: each event reaches the feed of this instance once, in log order.

    A commit of this instance and a notification from the database wake the follower. It also polls every second, because a
    notification is lost when its connection is, or when the instance that committed ends before it sends one."""

    name = "event_log"
    backoff = Backoff((0.05, 0.2, POLL_INTERVAL_S))
    """Revoked devices are found here: a database that is back must not wait for its reader."""

    uow: UnitOfWork[EventsTx]
    feed: LogOrderedFeedPublisher
    peer_changes: OtherInstanceEventHandler
    life: DatabaseLife = field(default_factory=DatabaseLife)
    _life: str = field(default="", init=False)
    """Of the log that `_cursor` is a place in."""
    _cursor: EventLogCursor | None = field(default=None, init=False)
    _since_advance: int = field(default=0, init=False)

    async def seek_to_end(self) -> None:
        """Call this once, before the start reads rules, credentials or access: a later event may change them."""
        while True:
            async with self.uow.write(None) as tx:
                await tx.events.advance_idle_writers()
            async with self.uow.read() as tx:
                life, self._cursor = self.life.current, await tx.events.end()
            if life == self.life.current:
                break
        if self._life and life != self._life:
            self.feed.begin_life(life, self._cursor)
        self._life = life

    async def run_once(self) -> float:
        while await self._process_page():
            await self.peer_changes.apply()
        await self.peer_changes.apply()
        return POLL_INTERVAL_S

    async def _process_page(self) -> bool:
        if self._cursor is None or self._life != self.life.current:
            await self.seek_to_end()
        cursor = self._cursor or EventLogCursor()
        advance = self._since_advance >= ADVANCE_AFTER
        if advance:
            async with self.uow.write(None) as tx:
                await tx.events.advance_idle_writers()
        async with self.uow.read(one_statement=not advance) as tx:
            events = await tx.events.list_after(cursor, PAGE_SIZE)
            end = await tx.events.end() if advance and len(events) < PAGE_SIZE else None
        if self._life != self.life.current:
            return True  # they are from another log than the cursor
        for event in events:
            cursor = self._cursor = cursor.after([event])
            if self.feed.publish_from_log(event, cursor):
                self.peer_changes.enqueue(event)
        self._since_advance += len(events)
        if end is not None:
            self._cursor, self._since_advance = cursor.union(end), 0
        return len(events) == PAGE_SIZE


@service
class OtherInstanceEventHandler:
    """Reacts to changes that other instances made. The kind of an event decides which part must reload.

    Each part reads the current state from the database and not from the event, so an event that arrives late or twice does no
    harm, and a thousand events for one row need one reload."""

    uow: UnitOfWork[CommandsTx]
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
            self.wake_events.recoveries.set()

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


@service
class PostgresListenerWorker:
    """Keeps the connection on which PostgreSQL notifies this instance, and opens it again when it is lost."""

    name = "postgres_listener"

    listener: PostgresCoordinationConnection

    async def run(self) -> None:
        attempt = 0
        while True:
            opened = self.listener.opened
            try:
                await self.listener.run_until_lost()
            except Unavailable as error:
                if error.code == "DEVICES_HELD_ELSEWHERE":
                    raise FatalWorkerError(error.message) from None
                attempt = attempt + 1 if self.listener.opened == opened else 1
                log = structlog.get_logger(self.name)
                log.warning("the connection for notifications is lost; it is opened again", error=error.message, attempt=attempt)
                await asyncio.sleep(RETRY_BACKOFF.pause_s(attempt))


@service
class StandbyTakeoverWorker:
    """Waits on a standby instance until it becomes leader, then takes over the devices."""

    name = "standby"

    leadership_acquired: asyncio.Event
    become_leader: Callable[[], Awaitable[object]]

    async def run(self) -> None:
        """The supervisor retries after a failure. Until it succeeds, devices cannot connect, and `/readyz` shows the error."""
        await self.leadership_acquired.wait()
        structlog.get_logger(self.name).info("this instance is now the leader")
        await self.become_leader()
        await asyncio.Event().wait()


@service
class DeviceLeaseWorker:
    """Closes this instance to devices while it cannot prove that no other instance serves them.

    An instance that others may replace holds a lease, which it renews in the database. When it cannot renew, others take it for
    dead after a while. It acts before they do: it closes its listeners and connections, so that the devices connect where their
    messages are stored. When it has renewed its lease it lets them in again."""

    name = "device_lease"

    link: DeviceBrokerLink
    lease_remaining_s: Callable[[], float]
    """Until the lease ends, by this machine's monotonic clock; 0 or less when it has ended."""
    on_resumed: Callable[[], None] = lambda: None
    """Called when devices may connect again."""
    suspended: bool = field(default=False, init=False)
    suspensions: int = field(default=0, init=False)

    async def run(self) -> None:
        while True:
            remaining_s = self.lease_remaining_s()
            if self.suspended is (remaining_s > 0):
                self._switch()
            await asyncio.sleep(max(remaining_s, LEASE_POLL_INTERVAL_S))

    def _switch(self) -> None:
        log = structlog.get_logger(self.name)
        if self.suspended:
            self.link.resume()
            self.on_resumed()
            log.info("this instance has renewed its lease; devices can connect again")
        else:
            self.link.suspend()
            self.suspensions += 1
            log.error("this instance cannot renew its lease in the database; its devices are disconnected")
        self.suspended = not self.suspended

    def readiness_errors(self) -> Mapping[str, str]:
        if not self.suspended:
            return {}
        return {"lease": "This instance cannot renew its lease in the database, so devices must connect to another instance."}


@service
class DatabaseLifeWorker(DueLoop):
    """After PostgreSQL has gone back: draws the consequences, and has everything that this process holds of the old one read
    anew."""

    name = "database_life"

    life: DatabaseLife
    recover: Callable[[], Awaitable[None]]
    reload: Callable[[], Awaitable[None]]
    _loaded: str = field(default="", init=False)

    async def run_once(self) -> float:
        await self.recover()
        life = self.life.current
        if self._loaded and life != self._loaded:
            await self.reload()
        self._loaded = life
        return MAX_SLEEP_S
