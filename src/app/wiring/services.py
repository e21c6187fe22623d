"""The inside, wired: every service with the ports it needs, and the bells by which one part wakes another part's loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from adapters.feed_hub import LogOrderedFeedPublisher
from adapters.storage.sql.postgres.leader_fence import FencedUnitOfWork
from app.config.settings import Settings
from app.runtime.timeout_lock import TimeoutLock
from app.wiring.adapters import Adapters, broker_endpoint
from app.workers.schedules import DevicePlanQueue
from app.workers.wake_event import WakeEvent
from domain.accounts.administration import AccountAdminService
from domain.accounts.password_change import PasswordService
from domain.accounts.projects import ProjectService
from domain.accounts.sessions import SessionService
from domain.accounts.team import TeamService
from domain.approvals.service import ApprovalService
from domain.commands.definitions import CommandDefinitionService
from domain.commands.device_reports import DeviceReportService
from domain.commands.device_types import DeviceTypeService
from domain.commands.dispatch import CommandDispatchService
from domain.commands.dispatch_queue import DispatchQueue
from domain.commands.queries import DeviceControlQueryService
from domain.commands.service import CommandService
from domain.devices.credential_sync import CredentialSync
from domain.devices.credentials import DeviceCredentialService
from domain.devices.erasure import DeviceErasureService
from domain.devices.presence import PresenceService
from domain.devices.service import DeviceService
from domain.events.audit import RateLimitedDeniedRequestLog
from domain.events.service import EventLogDispatcher, EventService
from domain.grants.access_explanation import AccessExplainer
from domain.grants.authorizer import Authorizer
from domain.grants.grant_service import GrantService
from domain.ingest.device_messages import DeviceMessageService
from domain.ingest.telemetry import IngestService
from domain.keys.authentication import CallerAuthenticator
from domain.keys.service import ApiKeyService
from domain.rules.model import MetricValue
from domain.rules.service import RuleService
from domain.schedules.device_plan_sync import DevicePlanService
from domain.schedules.firing import ScheduleFiringService
from domain.schedules.service import ScheduleService
from domain.telemetry.queries.downsampling import DownsamplingService
from domain.telemetry.queries.event_view import TelemetryEventQueryService
from domain.telemetry.queries.latest_and_history import TelemetryQueryService
from domain.telemetry.queries.rule_dry_run import RuleDryRunService
from domain.telemetry.retention import RetentionPeriods, RetentionService
from domain.telemetry.rollup_service import RollupService
from domain.webhooks.delivery import DeliveryService
from domain.webhooks.fanout import DeliveryFanout
from domain.webhooks.recipients import RecipientCache
from domain.webhooks.send_queues import EndpointQueues


@dataclass(slots=True)
class WakeEvents:
    """One for each loop that sleeps until something is due."""

    dispatch: WakeEvent = field(default_factory=WakeEvent)
    approvals: WakeEvent = field(default_factory=WakeEvent)
    schedules: WakeEvent = field(default_factory=WakeEvent)
    device_plans: WakeEvent = field(default_factory=WakeEvent)
    presence: WakeEvent = field(default_factory=WakeEvent)
    device_cleanup: WakeEvent = field(default_factory=WakeEvent)
    deliveries: WakeEvent = field(default_factory=WakeEvent)
    rule_timers: WakeEvent = field(default_factory=WakeEvent)
    feed_interest: WakeEvent = field(default_factory=WakeEvent)
    event_log: WakeEvent = field(default_factory=WakeEvent)


class Services:
    def __init__(self, settings: Settings, outside: Adapters, bells: WakeEvents) -> None:
        """One way of wiring, top to bottom in the order of the parts' stack."""
        self.device_plan_queue = DevicePlanQueue(bells.device_plans)
        self.engine_commit_lock = asyncio.Lock()
        self.recipient_cache = RecipientCache(exclusive=outside.is_single_instance)
        self.fanout = DeliveryFanout(scopes=self.recipient_cache, clock=outside.clock, bell=bells.deliveries.set)
        self.followed_feed = None if outside.is_single_instance else LogOrderedFeedPublisher(outside.feed, bells.event_log.set)
        self.event_recorder = EventLogDispatcher(
            ids=outside.ids, observers=[self.fanout], feed=self.followed_feed or outside.feed
        )
        self.uow = outside.database.unit_of_work(self.event_recorder)
        self.leader_uow = self.uow if outside.fence is None else FencedUnitOfWork(self.uow, outside.fence)
        """For what only the instance that holds the devices writes."""
        self._wire_accounts(outside)
        self.authorizer = Authorizer(windows=outside.engine.grant_evaluator)
        self._wire_devices(settings, outside, bells)
        self._wire_commands(outside, bells)
        self._wire_grants(outside)
        self._wire_schedules(outside, bells)
        self._wire_telemetry(settings, outside, bells)
        self._wire_webhooks(outside)

    def _wire_accounts(self, outside: Adapters) -> None:
        uow, clock, ids, hasher = self.uow, outside.clock, outside.ids, outside.hasher
        self.operator = AccountAdminService(uow=uow, clock=clock, ids=ids, hasher=hasher)
        self.sessions = SessionService(uow=uow, clock=clock, ids=ids, hasher=hasher, tokens=outside.tokens, digest=outside.digest)
        self.passwords = PasswordService(
            uow=uow, clock=clock, ids=ids, hasher=hasher, digest=outside.digest, mailer=outside.mailer
        )
        self.team = TeamService(uow=uow, clock=clock, ids=ids, hasher=hasher)
        self.projects = ProjectService(uow=uow, clock=clock, ids=ids)
        self.keys = ApiKeyService(uow=uow, clock=clock, ids=ids, digest=outside.digest)
        self.denial_log = RateLimitedDeniedRequestLog(uow=uow, clock=clock)
        self.callers = CallerAuthenticator(
            uow=uow, clock=clock, tokens=outside.tokens, digest=outside.digest, refusals=self.denial_log
        )
        log = TelemetryEventQueryService(uow=uow, engine=outside.engine.engine)
        self.events = EventService(uow=uow, clock=clock, telemetry=log)

    def _wire_devices(self, settings: Settings, outside: Adapters, bells: WakeEvents) -> None:
        uow, clock, ids = self.uow, outside.clock, outside.ids
        self.presence = PresenceService(uow=self.leader_uow, clock=clock, link=outside.link, wake=bells.presence.set)
        self.credential_sync = CredentialSync(
            uow=uow,
            link=outside.link,
            vault=outside.vault,
            lock=asyncio.Lock(),
            wake=bells.device_cleanup.set,
            on_synced=self.device_plan_queue.enqueue,
        )
        self.device_erasure = DeviceErasureService(
            uow=uow,
            clock=clock,
            wake=bells.device_cleanup.set,
            on_deleted=lambda number: outside.engine.engine.remove_device(number),
        )
        self.devices = DeviceService(
            uow=uow,
            clock=clock,
            ids=ids,
            credential_sync=self.credential_sync,
            presence=self.presence,
            erasure=self.device_erasure,
        )
        self.credentials = DeviceCredentialService(
            uow=uow,
            clock=clock,
            ids=ids,
            vault=outside.vault,
            hasher=outside.hasher,
            credential_sync=self.credential_sync,
            presence=self.presence,
            endpoint=broker_endpoint(settings),
        )

    def _wire_commands(self, outside: Adapters, bells: WakeEvents) -> None:
        uow, clock, ids, gate = self.uow, outside.clock, outside.ids, self.authorizer
        self.dispatch_queue = DispatchQueue(bells.dispatch.set)
        self.commands = CommandService(
            uow=uow,
            clock=clock,
            ids=ids,
            authorizer=gate,
            validator=outside.params_checker,
            execution_waiter=outside.execution_waiter,
            dispatch_queue=self.dispatch_queue,
            wake_approvals=bells.approvals.set,
        )
        self.definitions = CommandDefinitionService(
            uow=uow, clock=clock, ids=ids, authorizer=gate, validator=outside.params_checker, commands=self.commands
        )
        self.device_types = DeviceTypeService(uow=uow, clock=clock, ids=ids, validator=outside.params_checker)
        self.control = DeviceControlQueryService(uow=uow, clock=clock, authorizer=gate)
        self.dispatch = CommandDispatchService(
            uow=uow,
            clock=clock,
            link=outside.link,
            codec=outside.codec,
            execution_waiter=outside.execution_waiter,
            dispatch_queue=self.dispatch_queue,
            wake=bells.dispatch.set,
        )
        self.reports = DeviceReportService(execution_waiter=outside.execution_waiter)

    def _wire_grants(self, outside: Adapters) -> None:
        windows = outside.engine.grant_evaluator
        self.grants = GrantService(
            uow=self.uow,
            clock=outside.clock,
            ids=outside.ids,
            windows=windows,
            commands=self.commands,
            on_grants_changed=outside.feed.mark_access_stale,
        )
        self.access_explanations = AccessExplainer(uow=self.uow, clock=outside.clock, windows=windows, commands=self.commands)
        self.approvals = ApprovalService(uow=self.uow, clock=outside.clock, release=self.commands)

    def _wire_schedules(self, outside: Adapters, bells: WakeEvents) -> None:
        uow, clock, recurrence = self.uow, outside.clock, outside.recurrence
        self.device_plans = DevicePlanService(
            uow=uow, clock=clock, link=outside.link, codec=outside.codec, publisher=self.device_plan_queue.enqueue
        )
        self.schedules = ScheduleService(
            uow=uow,
            clock=clock,
            ids=outside.ids,
            recurrence=recurrence,
            commands=self.commands,
            plans=self.device_plans,
            schedule_bell=bells.schedules.set,
        )
        self.firing = ScheduleFiringService(
            uow=uow, clock=clock, recurrence=recurrence, commands=self.commands, plans=self.device_plans
        )

    def _wire_telemetry(self, settings: Settings, outside: Adapters, bells: WakeEvents) -> None:
        uow, clock, engine = self.uow, outside.clock, outside.engine
        turnstile = TimeoutLock(self.engine_commit_lock)
        self.rules = RuleService(
            uow=uow,
            clock=clock,
            ids=outside.ids,
            engine=engine.engine,
            commands=self.commands,
            engine_commit_lock=turnstile,
            wake_timers=bells.rule_timers.set,
        )
        self.ingest = IngestService(
            ids=outside.ids, clock=clock, engine=engine.engine, commands=self.commands, publisher=self.event_recorder
        )
        self.telemetry = TelemetryQueryService(
            uow=uow, clock=clock, engine=engine.engine, gate=self.authorizer, follows=lambda: not outside.is_leader
        )
        self.downsampling = DownsamplingService(uow=uow, clock=clock, engine=engine.engine, gate=self.authorizer)
        self.rollups = RollupService(uow=uow, clock=clock, engine=engine.engine)
        self.rule_dry_runs = RuleDryRunService(
            uow=uow,
            clock=clock,
            engine=engine.engine,
            fresh_engine=engine.create_engine,
            make_batch=engine.make_batch,
            encode=_encode_telemetry,
        )
        self.device_messages = DeviceMessageService(
            uow=uow,
            clock=clock,
            codec=outside.codec,
            reports=self.reports,
            presence=self.presence,
            plans=self.device_plans,
        )
        keep = RetentionPeriods(readings=settings.readings_days, rollups=settings.rollups_days, events=settings.events_days)
        self.retention = RetentionService(uow=uow, clock=clock, keep=keep)

    def _wire_webhooks(self, outside: Adapters) -> None:
        self.deliveries = DeliveryService(
            uow=self.uow,
            clock=outside.clock,
            ids=outside.ids,
            vault=outside.vault,
            signers=outside.engine.signer_factory,
            scopes=self.recipient_cache,
            jitter=outside.jitter,
            lanes=EndpointQueues(),
        )


def _encode_telemetry(at_ms: int, values: Mapping[str, MetricValue]) -> bytes:
    """A native telemetry payload, for trials over history."""
    return json.dumps({"ts": at_ms, "m": dict(values)}).encode()
