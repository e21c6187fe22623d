"""Constructs the services of the domain with the ports that they need. Those of sign-in and notifications are in `sign_in.py` and
`notifications.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adapters.crypto.tokens import Ed25519AuditSealKeyProvider
from adapters.feed_hub import LogOrderedFeedPublisher
from adapters.randomness import random_spread
from app.config.settings import Settings
from app.runtime.metrics import DroppedMessageLog, MeasuredExecutionWaiter
from app.runtime.supervisor import LockWithTimeout
from app.wiring.adapters import ServiceAdapters, broker_endpoint
from app.wiring.notifications import NotificationServices
from app.wiring.sign_in import SignInServices
from app.workers.due import WakeEvent, WakeEvents
from app.workers.periodic import log_clock_decision
from app.workers.rule_timers import log_clock_step
from app.workers.schedules import InProcessDevicePlanQueue
from domain.accounts.projects import ProjectService
from domain.approvals.service import ApprovalService, PendingApprovalCloser
from domain.audit.export import AuditExportGenerator
from domain.audit.seals import AuditSealService
from domain.commands.authority import QueuedCommandAuthority
from domain.commands.cancellation import CommandCancellationService
from domain.commands.definitions import CommandDefinitionService
from domain.commands.device_types import DeviceTypeAdminService
from domain.commands.dispatch import CommandDispatchService
from domain.commands.dispatch_queue import DispatchQueue
from domain.commands.queries import DeviceQueries, SubmittedCommandWaiter
from domain.commands.reports import ReportService
from domain.commands.submission import CommandSubmissionService
from domain.devices.absence import AbsenceTracker
from domain.devices.clock_watch import ClockWatch
from domain.devices.credential_sync import CredentialSyncService
from domain.devices.credentials import CredentialIssuer, DeviceCredentialService
from domain.devices.erasure import DeviceErasureService
from domain.devices.health import ClockSkewService, DroppedMessageService
from domain.devices.presence import PresenceService
from domain.devices.registration import BulkRegistrationService
from domain.devices.service import DeviceService
from domain.events.denied_requests import DenialLog
from domain.events.dispatcher import EventDispatcher
from domain.events.ports import TransactionEventObserver
from domain.events.service import EventService
from domain.grants.authorizer import Authorizer
from domain.grants.explanation import AccessExplainer
from domain.grants.service import GrantService, GroupGrantService
from domain.groups.service import DeviceGroupService
from domain.ingest.dead_letters import IngestDeadLetterService
from domain.ingest.device_messages import DeviceMessageHandler
from domain.ingest.pipeline import EngineClock
from domain.ingest.results import EngineResultWriter
from domain.kernel.steady_time import SteadyTimePersistenceService
from domain.kernel.unit_of_work import UnitOfWork
from domain.keys.authenticator import CallerAuthenticator
from domain.keys.service import ApiKeyService
from domain.notifications.fanout import NotificationFanout
from domain.provisioning.codes import ProvisioningCodeService
from domain.provisioning.redemption import ProvisioningCodeRedemptionService
from domain.rules.model import MetricValue
from domain.rules.service import RuleService
from domain.schedules.authority import PlannedSlotAuthority
from domain.schedules.device_plan import DevicePlanSyncService
from domain.schedules.firing import LONG_BATCH, SHORT_BATCH, ScheduleFiringService
from domain.schedules.left_edges import LeftEdgeResolver
from domain.schedules.recovery import LifeRecovery
from domain.schedules.service import ScheduleOccurrenceService, ScheduleService
from domain.team.members import MemberService
from domain.team.operator import OperatorService
from domain.telemetry.downsampling import DownsamplingQueryService
from domain.telemetry.dry_run import RuleDryRunService
from domain.telemetry.history import ReadingHistory, ReadingsAsEventsService, TelemetryQueryService, moved_before_ms
from domain.telemetry.retention import OldReadingMover, RetentionPeriods, RetentionService
from domain.telemetry.rollups import RollupService
from domain.webhooks.delivery import WebhookDeliveryService
from domain.webhooks.queues import EndpointQueues
from domain.webhooks.recipients import WebhookDeliveryFanout, WebhookRecipientCache
from domain.webhooks.recovery import WebhookRecoveryService

if TYPE_CHECKING:
    from adapters.clickhouse.reading_store import ClickHouseReadingStore


class DomainServices:
    def __init__(self, settings: Settings, adapters: ServiceAdapters, wake_events: WakeEvents) -> None:
        """The order follows the stack of the parts: each service uses services constructed before it."""
        self.device_plan_queue = InProcessDevicePlanQueue(wake_event=wake_events.device_plans)
        self.engine_commit_lock = asyncio.Lock()
        self.bounded_commit_lock = LockWithTimeout(lock=self.engine_commit_lock)
        """The same lock for requests, which do not wait for it for long."""
        self.engine_clock = EngineClock(engine=adapters.engine.engine, clock=adapters.clock, on_step=log_clock_step)
        self.recipient_cache = WebhookRecipientCache(exclusive=adapters.is_single_instance)
        self.fanout = WebhookDeliveryFanout(
            recipients=self.recipient_cache, clock=adapters.clock, wake_worker=wake_events.deliveries.set
        )
        self.followed_feed = (
            None if adapters.is_single_instance else LogOrderedFeedPublisher(adapters.feed, wake_events.event_log.set)
        )
        self.notification_observer = NotificationFanout(clock=adapters.clock, wake=wake_events.notifications.set)
        observers: list[TransactionEventObserver[Any]] = [self.fanout, self.notification_observer]
        self.event_recorder: EventDispatcher[Any] = EventDispatcher(
            ids=adapters.ids, observers=observers, feed=self.followed_feed or adapters.feed, hasher=adapters.engine.chain_hasher
        )
        self.uow = adapters.database.unit_of_work(self.event_recorder)
        self.leader_uow = self.uow if adapters.fence is None else self.uow.fenced_by(adapters.fence)
        """For writes that only the leader makes."""
        self.shared, self.creating = adapters.shared_ports(self.uow), adapters.creating_ports(self.uow)
        self.absence = AbsenceTracker(
            **self.shared,
            hears=lambda: adapters.is_leader and adapters.link.connection_problem() is None,
            reconnects=lambda: adapters.link.stats().get("reconnects", 0),
            broker_is_apart=settings.broker not in ("embedded", "none"),
        )
        wall = adapters.clock.wall
        self.steady_time = SteadyTimePersistenceService(
            uow=self.uow, clock=adapters.clock, heard_ms=self.absence.heard_ms, wall=wall
        )
        self.clock_watch = ClockWatch(
            uow=self.uow,
            wall=wall,
            steady_time=self.steady_time,
            absence=self.absence,
            tells_people=lambda: adapters.is_leader,
            on_time=adapters.tell_broker_time,
            on_decision=log_clock_decision,
            on_step=lambda: _wake_all(wake_events.approvals, wake_events.schedules, wake_events.rule_timers),
        )
        self._wire_accounts(settings, adapters)
        self.authorizer = Authorizer(evaluator=adapters.engine.grant_evaluator)
        self.stored_telemetry = StoredTelemetryServices(self.uow, settings, adapters, self.authorizer)
        self._wire_devices(settings, adapters, wake_events)
        seal_keys = Ed25519AuditSealKeyProvider(ring=adapters.key_ring)
        self.audit_exporter = AuditExportGenerator(**self.shared, keys=seal_keys)
        self.audit_seals = AuditSealService(**self.shared, keys=seal_keys)
        self._wire_commands(adapters, wake_events)
        self._wire_grants(adapters)
        self.notifications = NotificationServices(self.uow, settings, adapters, self.sign_in, self.approvals)
        self._wire_schedules(adapters, wake_events)
        self._wire_telemetry(adapters, wake_events)
        self._wire_webhooks(adapters, wake_events)

    def _wire_accounts(self, settings: Settings, adapters: ServiceAdapters) -> None:
        hasher = adapters.hasher
        self.operator = OperatorService(**self.creating, hasher=hasher)
        self.sign_in = SignInServices(self.uow, settings, adapters, self.operator)
        self.logins, self.sessions, self.passwords = self.sign_in.logins, self.sign_in.sessions, self.sign_in.passwords
        requests = PendingApprovalCloser(waiter=adapters.approval_waiter)
        self.team = MemberService(**self.creating, hasher=hasher, requests=requests)
        self.projects = ProjectService(**self.creating)
        self.keys: ApiKeyService[Any] = ApiKeyService(**self.creating, digest=adapters.digest, requests=requests)
        self.denial_log = DenialLog(**self.shared)
        self.callers = CallerAuthenticator(
            **self.shared,
            tokens=adapters.tokens,
            token_hasher=adapters.digest,
            denied_requests=self.denial_log,
            requirement=settings.require_second_factor,
        )
        log = ReadingsAsEventsService(uow=self.uow, engine=adapters.engine.engine)
        self.events = EventService(**self.shared, telemetry=log)

    def _wire_devices(self, settings: Settings, adapters: ServiceAdapters, wake_events: WakeEvents) -> None:
        clock = adapters.clock
        self.presence = PresenceService(
            uow=self.leader_uow, clock=clock, link=adapters.link, wake=wake_events.presence.set, front=adapters.front
        )
        self.credential_sync = CredentialSyncService(
            uow=self.uow,
            link=adapters.link,
            vault=adapters.vault,
            lock=asyncio.Lock(),
            wake=wake_events.device_cleanup.set,
            on_synced=self.device_plan_queue.enqueue,
            changes=None if adapters.cluster is None else adapters.cluster.credential_changes,
        )
        self.device_erasure = DeviceErasureService(
            **self.shared,
            wake=wake_events.device_cleanup.set,
            on_deleted=lambda number: adapters.engine.engine.remove_device(number),
            erase_elsewhere=None if self.stored_telemetry.store is None else self.stored_telemetry.store.delete_device,
        )
        self.clock_offsets = ClockSkewService(uow=self.leader_uow, clock=clock)
        self.dropped_messages = DroppedMessageService(
            uow=self.leader_uow, clock=clock, wake=wake_events.dropped_messages.set, log=DroppedMessageLog(clock=clock).write
        )
        self.broker_refusals = DroppedMessageService(  # of an external broker, which may ask any instance
            uow=self.uow, clock=clock, wake=lambda: None, log=DroppedMessageLog(clock=clock).write
        )
        self.devices = DeviceService(
            **self.creating, credential_sync=self.credential_sync, presence=self.presence, erasure=self.device_erasure
        )
        self.credential_issuer = CredentialIssuer(ids=adapters.ids, vault=adapters.vault, endpoint=broker_endpoint(settings))
        self.credentials = DeviceCredentialService(
            **self.shared,
            issuer=self.credential_issuer,
            vault=adapters.vault,
            hasher=adapters.hasher,
            credential_sync=self.credential_sync,
            presence=self.presence,
        )
        issuing: dict[str, Any] = {"issuer": self.credential_issuer, "credential_sync": self.credential_sync}
        self.bulk_registration = BulkRegistrationService(**self.creating, **issuing)
        self.provisioning_codes = ProvisioningCodeService(**adapters.secret_ports(self.uow))
        self.device_claims = ProvisioningCodeRedemptionService(**adapters.secret_ports(self.uow), **issuing)

    def _wire_commands(self, adapters: ServiceAdapters, wake_events: WakeEvents) -> None:
        gate = self.authorizer
        self.dispatch_queue = DispatchQueue(wake=wake_events.dispatch.set)
        self.execution_waiter = MeasuredExecutionWaiter(adapters.execution_waiter)
        self.queued_authority = QueuedCommandAuthority(
            evaluator=adapters.engine.grant_evaluator,
            execution_waiter=self.execution_waiter,
            approval_waiter=adapters.approval_waiter,
            forget=self.dispatch_queue.discard,
        )
        self.event_recorder.follow_ups.append(self.queued_authority)
        self.cancellation = CommandCancellationService(**self.shared, authorizer=gate, authority=self.queued_authority)
        self.commands = CommandSubmissionService(
            **self.creating,
            authorizer=gate,
            validator=adapters.params_checker,
            dispatch_queue=self.dispatch_queue,
            wake_approvals=wake_events.approvals.set,
        )
        self.submission_waiter = SubmittedCommandWaiter(
            **self.shared, execution_waiter=adapters.execution_waiter, approval_waiter=adapters.approval_waiter
        )
        self.definitions = CommandDefinitionService(
            **self.creating, authorizer=gate, validator=adapters.params_checker, commands=self.commands
        )
        self.device_types = DeviceTypeAdminService(**self.creating, validator=adapters.params_checker)
        self.control = DeviceQueries(**self.shared, authorizer=gate)
        self.awaited_hellos: set[int] = set()
        self.dispatch = CommandDispatchService(
            **self.shared,
            link=adapters.link,
            codec=adapters.codec,
            execution_waiter=self.execution_waiter,
            dispatch_queue=self.dispatch_queue,
            absence=self.absence,
            wake=wake_events.dispatch.set,
            life=adapters.life,
            authority=self.queued_authority,
            front=adapters.front,
            awaited_hellos=self.awaited_hellos,
        )
        self.reports = ReportService(execution_waiter=self.execution_waiter)

    def _wire_grants(self, adapters: ServiceAdapters) -> None:
        windows, mark_stale = adapters.engine.grant_evaluator, adapters.feed.mark_access_stale
        granting: dict[str, Any] = {"windows": windows, "commands": self.commands, "on_grants_changed": mark_stale}
        self.grants: GrantService[Any] = GrantService(**self.creating, **granting)
        self.group_grants: GroupGrantService[Any] = GroupGrantService(**self.creating, **granting)
        self.groups = DeviceGroupService(**self.creating, authorizer=self.authorizer, on_access_changed=mark_stale)
        self.access_explanations = AccessExplainer(**self.shared, evaluator=windows, commands=self.commands)
        self.approvals = ApprovalService(**self.shared, submitter=self.commands, waiter=adapters.approval_waiter)

    def _wire_schedules(self, adapters: ServiceAdapters, wake_events: WakeEvents) -> None:
        recurrence = adapters.recurrence
        self.device_plans = DevicePlanSyncService(
            **self.shared, link=adapters.link, codec=adapters.codec, publisher=self.device_plan_queue.enqueue
        )
        self.event_recorder.follow_ups.append(PlannedSlotAuthority(authority=self.queued_authority, plans=self.device_plans))
        self.schedules = ScheduleService(
            **self.creating,
            recurrence=recurrence,
            commands=self.commands,
            plans=self.device_plans,
            wake=wake_events.schedules.set,
        )
        self.life_recovery = LifeRecovery(**self.shared, life=adapters.life)
        self.left_edges = LeftEdgeResolver(**self.shared, commands=self.commands, absence=self.absence, life=adapters.life)
        self.schedule_calendar = ScheduleOccurrenceService(**self.shared, recurrence=recurrence)
        self.firing = ScheduleFiringService(
            **self.shared,
            recurrence=recurrence,
            commands=self.commands,
            plans=self.device_plans,
            absence=self.absence,
            doubtful_until_ms=self.clock_watch.doubtful_until_ms,
            batch_size=SHORT_BATCH if adapters.database.file else LONG_BATCH,
            life=adapters.life,
        )

    def _wire_telemetry(self, adapters: ServiceAdapters, wake_events: WakeEvents) -> None:
        clock, engine = adapters.clock, adapters.engine.engine
        self.rules = RuleService(
            **self.creating,
            engine=engine,
            commands=self.commands,
            engine_commit_lock=self.bounded_commit_lock,
            wake_timers=wake_events.rule_timers.set,
        )
        self.ingest = EngineResultWriter(
            clock=clock,
            engine=engine,
            commands=self.commands,
            publisher=self.event_recorder,
            owned=None if adapters.cluster is None else adapters.cluster.ownership,
        )
        self.dead_letters = IngestDeadLetterService(uow=self.leader_uow, clock=clock)
        self.device_messages = DeviceMessageHandler(
            **self.shared,
            codec=adapters.codec,
            reports=self.reports,
            presence=self.presence,
            plans=self.device_plans,
            left_edges=self.left_edges,
            front=adapters.front,
            is_connected=adapters.link.is_connected,
            awaited_hellos=self.awaited_hellos,
        )

    def _wire_webhooks(self, adapters: ServiceAdapters, wake_events: WakeEvents) -> None:
        self.deliveries = WebhookDeliveryService(
            **self.creating,
            vault=adapters.vault,
            create_signer=adapters.engine.create_signer,
            recipients=self.recipient_cache,
            jitter=random_spread,
            queues=EndpointQueues(),
        )
        self.recoveries = WebhookRecoveryService(
            uow=self.uow, clock=adapters.clock, wake_delivery=wake_events.deliveries.set, wake=wake_events.recoveries.set
        )


class StoredTelemetryServices:
    """Queries, roll-ups, retention, and the moving of old readings to ClickHouse."""

    def __init__(self, uow: UnitOfWork[Any], settings: Settings, adapters: ServiceAdapters, authorizer: Authorizer) -> None:
        clock, engine, days = adapters.clock, adapters.engine, settings.readings_days
        self.store = _create_store(settings)
        """None: the database keeps all readings."""
        self.stored = stored = (
            ReadingHistory()
            if self.store is None
            else ReadingHistory(store=self.store, moved_before_ms=lambda: moved_before_ms(clock.now_ms(), days))
        )
        shared: dict[str, Any] = {"uow": uow, "clock": clock, "engine": engine.engine}
        reading: dict[str, Any] = {**shared, "authorizer": authorizer, "stored": stored}
        self.queries = TelemetryQueryService(
            **reading, create_engine=engine.create_engine, is_stored_elsewhere=adapters.is_stored_elsewhere
        )
        self.downsampling = DownsamplingQueryService(**reading)
        self.rollups = RollupService(**shared)
        self.rule_dry_runs = RuleDryRunService(
            **shared, create_engine=engine.create_engine, make_batch=engine.make_batch, encode=_encode_telemetry, stored=stored
        )
        periods = RetentionPeriods(
            readings=days, rollups=settings.rollups_days, events=settings.events_days, deliveries=settings.deliveries_days
        )
        self.retention = RetentionService(uow=uow, clock=clock, periods=periods, moves_readings=self.store is not None)
        self.mover = None if self.store is None else OldReadingMover(uow=uow, clock=clock, store=self.store, days=days)

    async def close(self) -> None:
        if self.store is not None:
            await self.store.close()


def _encode_telemetry(at_ms: int, values: Mapping[str, MetricValue]) -> bytes:
    """As a native payload, so that a rule dry run can replay history."""
    return json.dumps({"ts": at_ms, "m": dict(values)}).encode()


def _create_store(settings: Settings) -> ClickHouseReadingStore | None:
    if settings.clickhouse_url is None:
        return None
    from adapters.clickhouse.reading_store import ClickHouseConnectionConfig, ClickHouseReadingStore  # imports httpx

    address = ClickHouseConnectionConfig.parse(settings.clickhouse_url.get_secret_value())
    return ClickHouseReadingStore(address, days=settings.clickhouse_days)


def _wake_all(*events: WakeEvent) -> None:
    for event in events:
        event.set()
