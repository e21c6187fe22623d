"""The inside, wired: every service with the ports it needs, and the bells by which one part wakes another part's loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from adapters.feed import FollowedFeed
from adapters.storage.sql.fence import FencedUnitOfWork
from app.loops.doorbell import Doorbell
from app.loops.schedules import PlanOutbox
from app.outside import Outside, reached_at
from app.patience import PatientLock
from app.settings import Settings
from domain.accounts.operator import OperatorService
from domain.accounts.passwords import PasswordService
from domain.accounts.projects import ProjectService
from domain.accounts.sessions import SessionService
from domain.accounts.team import TeamService
from domain.approvals.service import ApprovalService
from domain.commands.control import ControlService
from domain.commands.definitions import DefinitionService
from domain.commands.device_types import DeviceTypeService
from domain.commands.dispatch import DispatchService
from domain.commands.offers import Offers
from domain.commands.reports import ReportService
from domain.commands.service import CommandService
from domain.devices.admission import Admission
from domain.devices.credentials import CredentialService
from domain.devices.erasure import Erasure
from domain.devices.presence import PresenceService
from domain.devices.service import DeviceService
from domain.events.refusals import RefusalLog
from domain.events.service import EventRecorder, EventService
from domain.grants.access import AccessService
from domain.grants.granting import GrantService
from domain.grants.service import Gate
from domain.keys.callers import CallerService
from domain.keys.service import KeyService
from domain.rules.model import Value
from domain.rules.service import RuleService
from domain.schedules.firing import FiringService
from domain.schedules.plans import PlanService
from domain.schedules.service import ScheduleService
from domain.telemetry.ingest import IngestService
from domain.telemetry.log import TelemetryLogService
from domain.telemetry.retention import Keep, RetentionService
from domain.telemetry.rollup_service import RollupService
from domain.telemetry.service import TelemetryService
from domain.telemetry.stretches import StretchService
from domain.telemetry.trial import TrialService
from domain.telemetry.uplink import UplinkService
from domain.webhooks.delivery import DeliveryService
from domain.webhooks.fanout import Fanout
from domain.webhooks.lanes import Lanes
from domain.webhooks.scope import Scopes


@dataclass(slots=True)
class Bells:
    """One for each loop that sleeps until something is due."""

    dispatch: Doorbell = field(default_factory=Doorbell)
    approvals: Doorbell = field(default_factory=Doorbell)
    schedules: Doorbell = field(default_factory=Doorbell)
    plans: Doorbell = field(default_factory=Doorbell)
    presence: Doorbell = field(default_factory=Doorbell)
    upkeep: Doorbell = field(default_factory=Doorbell)
    deliveries: Doorbell = field(default_factory=Doorbell)
    timers: Doorbell = field(default_factory=Doorbell)
    watching: Doorbell = field(default_factory=Doorbell)
    log: Doorbell = field(default_factory=Doorbell)


class Services:
    def __init__(self, settings: Settings, outside: Outside, bells: Bells) -> None:
        """One way of wiring, top to bottom in the order of the parts' stack."""
        self.plan_outbox = PlanOutbox(bells.plans)
        self.turnstile = asyncio.Lock()
        self.scopes = Scopes(exclusive=outside.exclusive)
        self.fanout = Fanout(scopes=self.scopes, clock=outside.clock, bell=bells.deliveries.ring)
        self.followed = None if outside.exclusive else FollowedFeed(outside.feed, bells.log.ring)
        self.recorder = EventRecorder(ids=outside.ids, observers=[self.fanout], feed=self.followed or outside.feed)
        self.uow = outside.database.unit_of_work(self.recorder)
        self.holders_uow = self.uow if outside.fence is None else FencedUnitOfWork(self.uow, outside.fence)
        """For what only the instance that holds the devices writes."""
        self._people(outside)
        self.gate = Gate(windows=outside.engine.windows)
        self._devices(settings, outside, bells)
        self._commands(outside, bells)
        self._permission(outside)
        self._schedules(outside, bells)
        self._telemetry(settings, outside, bells)
        self._webhooks(outside)

    def _people(self, outside: Outside) -> None:
        uow, clock, ids, hasher = self.uow, outside.clock, outside.ids, outside.hasher
        self.operator = OperatorService(uow=uow, clock=clock, ids=ids, hasher=hasher)
        self.sessions = SessionService(uow=uow, clock=clock, ids=ids, hasher=hasher, tokens=outside.tokens, digest=outside.digest)
        self.passwords = PasswordService(
            uow=uow, clock=clock, ids=ids, hasher=hasher, digest=outside.digest, mailer=outside.mailer
        )
        self.team = TeamService(uow=uow, clock=clock, ids=ids, hasher=hasher)
        self.projects = ProjectService(uow=uow, clock=clock, ids=ids)
        self.keys = KeyService(uow=uow, clock=clock, ids=ids, digest=outside.digest)
        self.refusals = RefusalLog(uow=uow, clock=clock)
        self.callers = CallerService(
            uow=uow, clock=clock, tokens=outside.tokens, digest=outside.digest, refusals=self.refusals
        )
        log = TelemetryLogService(uow=uow, engine=outside.engine.engine)
        self.events = EventService(uow=uow, clock=clock, telemetry=log)

    def _devices(self, settings: Settings, outside: Outside, bells: Bells) -> None:
        uow, clock, ids = self.uow, outside.clock, outside.ids
        self.presence = PresenceService(uow=self.holders_uow, clock=clock, link=outside.link, bell=bells.presence.ring)
        self.admission = Admission(
            uow=uow,
            link=outside.link,
            vault=outside.vault,
            turnstile=asyncio.Lock(),
            bell=bells.upkeep.ring,
            on_admitted=self.plan_outbox.mark,
        )
        self.erasure = Erasure(
            uow=uow, clock=clock, bell=bells.upkeep.ring, on_deleted=lambda number: outside.engine.engine.drop_device(number)
        )
        self.devices = DeviceService(
            uow=uow, clock=clock, ids=ids, admission=self.admission, presence=self.presence, erasure=self.erasure
        )
        self.credentials = CredentialService(
            uow=uow,
            clock=clock,
            ids=ids,
            vault=outside.vault,
            hasher=outside.hasher,
            admission=self.admission,
            presence=self.presence,
            endpoint=reached_at(settings),
        )

    def _commands(self, outside: Outside, bells: Bells) -> None:
        uow, clock, ids, gate = self.uow, outside.clock, outside.ids, self.gate
        self.offers = Offers(bells.dispatch.ring)
        self.commands = CommandService(
            uow=uow,
            clock=clock,
            ids=ids,
            gate=gate,
            checker=outside.checker,
            outcomes=outside.outcomes,
            offers=self.offers,
            approval_bell=bells.approvals.ring,
        )
        self.definitions = DefinitionService(
            uow=uow, clock=clock, ids=ids, gate=gate, checker=outside.checker, commands=self.commands
        )
        self.device_types = DeviceTypeService(uow=uow, clock=clock, ids=ids, checker=outside.checker)
        self.control = ControlService(uow=uow, clock=clock, gate=gate)
        self.dispatch = DispatchService(
            uow=uow,
            clock=clock,
            link=outside.link,
            codec=outside.codec,
            outcomes=outside.outcomes,
            offers=self.offers,
            bell=bells.dispatch.ring,
        )
        self.reports = ReportService(outcomes=outside.outcomes)

    def _permission(self, outside: Outside) -> None:
        windows = outside.engine.windows
        self.grants = GrantService(
            uow=self.uow,
            clock=outside.clock,
            ids=outside.ids,
            windows=windows,
            commands=self.commands,
            on_grants_changed=outside.feed.recheck,
        )
        self.access = AccessService(uow=self.uow, clock=outside.clock, windows=windows, commands=self.commands)
        self.approvals = ApprovalService(uow=self.uow, clock=outside.clock, release=self.commands)

    def _schedules(self, outside: Outside, bells: Bells) -> None:
        uow, clock, recurrence = self.uow, outside.clock, outside.recurrence
        self.plans = PlanService(uow=uow, clock=clock, link=outside.link, codec=outside.codec, publisher=self.plan_outbox.mark)
        self.schedules = ScheduleService(
            uow=uow,
            clock=clock,
            ids=outside.ids,
            recurrence=recurrence,
            commands=self.commands,
            plans=self.plans,
            schedule_bell=bells.schedules.ring,
        )
        self.firing = FiringService(uow=uow, clock=clock, recurrence=recurrence, commands=self.commands, plans=self.plans)

    def _telemetry(self, settings: Settings, outside: Outside, bells: Bells) -> None:
        uow, clock, engine = self.uow, outside.clock, outside.engine
        turnstile = PatientLock(self.turnstile)
        self.rules = RuleService(
            uow=uow,
            clock=clock,
            ids=outside.ids,
            engine=engine.engine,
            commands=self.commands,
            turnstile=turnstile,
            timer_bell=bells.timers.ring,
        )
        self.ingest = IngestService(
            ids=outside.ids, clock=clock, engine=engine.engine, commands=self.commands, announcer=self.recorder
        )
        self.telemetry = TelemetryService(
            uow=uow, clock=clock, engine=engine.engine, gate=self.gate, follows=lambda: not outside.holds_devices
        )
        self.stretches = StretchService(uow=uow, clock=clock, engine=engine.engine, gate=self.gate)
        self.rollups = RollupService(uow=uow, clock=clock, engine=engine.engine)
        self.trials = TrialService(
            uow=uow,
            clock=clock,
            engine=engine.engine,
            fresh_engine=engine.fresh,
            make_batch=engine.batch,
            encode=_payload,
        )
        self.uplink = UplinkService(
            uow=uow,
            clock=clock,
            codec=outside.codec,
            reports=self.reports,
            presence=self.presence,
            plans=self.plans,
        )
        keep = Keep(readings=settings.readings_days, rollups=settings.rollups_days, events=settings.events_days)
        self.retention = RetentionService(uow=uow, clock=clock, keep=keep)

    def _webhooks(self, outside: Outside) -> None:
        self.deliveries = DeliveryService(
            uow=self.uow,
            clock=outside.clock,
            ids=outside.ids,
            vault=outside.vault,
            signers=outside.engine.signers,
            scopes=self.scopes,
            jitter=outside.jitter,
            lanes=Lanes(),
        )


def _payload(at_ms: int, values: Mapping[str, Value]) -> bytes:
    """A native telemetry payload, for trials over history."""
    return json.dumps({"ts": at_ms, "m": dict(values)}).encode()
