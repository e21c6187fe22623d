"""The one place where things are made and joined. Nothing here opens anything: `lifecycle.py` starts and stops it all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quart import Quart

from app.broker_figures import BrokerFigures
from app.homeassistant import home_assistant
from app.loops.approvals import ApprovalLoop
from app.loops.checkpoint import CheckpointLoop
from app.loops.deliveries import DeliveryLoop
from app.loops.device_upkeep import DeviceUpkeepLoop
from app.loops.dispatch import DispatchLoop
from app.loops.doorbell import Doorbell
from app.loops.faults import FaultLog
from app.loops.leftovers import LeftoverLoop
from app.loops.log import HeraldLoop, LogLoop
from app.loops.presence import PresenceLoop
from app.loops.retention import RetentionLoop
from app.loops.rollups import RollupLoop
from app.loops.rule_timers import RuleTimerLoop
from app.loops.schedules import PlanLoop, ScheduleLoop
from app.loops.seen import Seen
from app.loops.tally import TallyLoop
from app.loops.uplink import UplinkLoop
from app.loops.watching import WatchingLoop
from app.metrics import Metrics
from app.neighbours import Neighbours
from app.outside import Outside
from app.services import Bells, Services
from app.settings import Settings
from app.supervisor import Loop, Supervisor
from app.web import web
from domain.kernel.errors import Unavailable
from domain.webhooks.leftovers import Leftovers
from domain.webhooks.watching import WatchingService

if TYPE_CHECKING:
    from adapters.storage.sql.herald import PostgresHerald


@dataclass(slots=True)
class Loops:
    """By name, because others ask them for their figures or hand them work."""

    uplink: UplinkLoop
    deliveries: DeliveryLoop
    dispatch: DispatchLoop
    schedules: ScheduleLoop
    checkpoint: CheckpointLoop
    watching: WatchingLoop
    faults: FaultLog
    of_devices: tuple[Loop, ...]
    rollups: RollupLoop
    retention: RetentionLoop
    others: tuple[Loop, ...]
    log: LogLoop | None = None
    herald: PostgresHerald | None = None

    def in_order(self, *, holds_devices: bool) -> list[Loop]:
        """What sends stands before what makes it send, and the checkpoint is stopped after the uplink that feeds it. Without
        devices there is nobody to send to, and whether they are online is not ours to say."""
        between: list[Loop] = [] if self.log is None or self.herald is None else [HeraldLoop(self.herald), self.log]
        if not holds_devices:
            return [*between, self.watching, self.deliveries, *self.others, self.schedules]
        sending: list[Loop] = [self.checkpoint, self.watching, self.deliveries, self.dispatch]
        return [*between, *sending, *self.others, *self.of_devices, self.schedules, self.uplink]

    def taken_over(self) -> list[Loop]:
        """What is added when the devices become ours while we run."""
        return [self.checkpoint, self.dispatch, *self.of_devices, self.uplink]


@dataclass(slots=True)
class Program:
    settings: Settings
    outside: Outside
    services: Services
    loops: Loops
    supervisor: Supervisor
    metrics: Metrics
    http: Quart

    async def troubles(self) -> Mapping[str, str]:
        """What ails the service now, by part; empty when it is ready."""
        found = {f"worker {name}": trouble for name, trouble in self.supervisor.troubles().items()}
        try:
            await self.outside.database.check()
        except Unavailable as error:
            found["database"] = error.message
        if self.outside.link.stats().get("stopped"):
            found["broker"] = "The device link is not running."
        return found


def compose(settings: Settings) -> Program:
    """Raises StartRefused, EngineMissing, EngineStale, DatabaseUnusable."""
    bells = Bells()
    outside = Outside(settings, on_interest=bells.watching.ring)
    services = Services(settings, outside, bells)
    loops = _loops(outside, services, bells)
    _join_others(settings, outside, services, bells, loops)
    metrics = Metrics()
    loops.of_devices += home_assistant(settings, outside, services, metrics)
    supervisor = Supervisor(loops.in_order(holds_devices=outside.holds_devices))
    program = Program(settings, outside, services, loops, supervisor, metrics, http=Quart("unused"))
    program.http = web(program)
    _publish(program)
    return program


def _loops(outside: Outside, services: Services, bells: Bells) -> Loops:
    clock, uow, engine = outside.clock, services.holders_uow, outside.engine.engine
    seen, faults = Seen(), FaultLog(clock)
    dispatch = DispatchLoop(dispatch=services.dispatch, clock=clock, bell=bells.dispatch)
    rollups, retention = RollupLoop(rollups=services.rollups), RetentionLoop(retention=services.retention)
    return Loops(
        uplink=UplinkLoop(
            link=outside.link,
            engine=engine,
            make_batch=outside.engine.batch,
            uow=uow,
            clock=clock,
            uplink=services.uplink,
            ingest=services.ingest,
            turnstile=services.turnstile,
            seen=seen,
            faults=faults,
            ready=dispatch.ready,
            subscribed=dispatch.subscribed,
            timers=bells.timers,
        ),
        deliveries=DeliveryLoop(deliveries=services.deliveries, courier=outside.courier, clock=clock, bell=bells.deliveries),
        dispatch=dispatch,
        schedules=ScheduleLoop(firing=services.firing, clock=clock, bell=bells.schedules),
        checkpoint=CheckpointLoop(engine=engine, uow=uow, seen=seen, turnstile=services.turnstile),
        watching=_watching(outside, services, bells),
        faults=faults,
        rollups=rollups,
        retention=retention,
        others=(
            TallyLoop(flushes=(services.callers.flush_used, services.sessions.flush_hasty, services.refusals.flush)),
            retention,
            ApprovalLoop(approvals=services.approvals, clock=clock, bell=bells.approvals),
        ),
        of_devices=(rollups, *_of_devices(outside, services, bells)),
    )


def _of_devices(outside: Outside, services: Services, bells: Bells) -> Sequence[Loop]:
    """What only the instance does that holds the devices."""
    clock = outside.clock
    return (
        PlanLoop(plans=services.plans, outbox=services.plan_outbox),
        PresenceLoop(presence=services.presence, clock=clock, bell=bells.presence),
        DeviceUpkeepLoop(erasure=services.erasure, admission=services.admission, clock=clock, bell=bells.upkeep),
        _rule_timers(outside, services, bells),
        LeftoverLoop(leftovers=Leftovers(uow=services.uow), bell=Doorbell()),
    )


def _join_others(settings: Settings, outside: Outside, services: Services, bells: Bells, loops: Loops) -> None:
    """Where other instances may write to the database: the log is followed."""
    if services.followed is not None:
        from adapters.storage.sql.herald import PostgresHerald  # asyncpg, which SQLite does without

        neighbours = Neighbours(services=services, bells=bells, outcomes=outside.outcomes, deliveries=loops.deliveries)
        loops.log = LogLoop(uow=services.uow, feed=services.followed, neighbours=neighbours, bell=bells.log)
        loops.herald = PostgresHerald(
            settings.database, heard=bells.log.ring, holds_devices=settings.holds_devices, fence=outside.fence
        )


def _rule_timers(outside: Outside, services: Services, bells: Bells) -> RuleTimerLoop:
    return RuleTimerLoop(
        engine=outside.engine.engine,
        ingest=services.ingest,
        uow=services.holders_uow,
        clock=outside.clock,
        turnstile=services.turnstile,
        bell=bells.timers,
    )


def _watching(outside: Outside, services: Services, bells: Bells) -> WatchingLoop:
    watching = WatchingService(uow=services.uow, clock=outside.clock)
    return WatchingLoop(watching=watching, hub=outside.feed, engine=outside.engine.engine, bell=bells.watching)


def _publish(program: Program) -> None:
    """Every figure `/metrics` shows beside the requests."""
    uplink, deliveries, services = program.loops.uplink, program.loops.deliveries, program.services
    metrics, outside = program.metrics, program.outside
    metrics.read("link", "The device link's counters.", outside.link.stats)
    metrics.add(BrokerFigures(outside.link.stats))
    metrics.read("uplink_faults", "What devices sent that could not be used.", lambda: dict(program.loops.faults.counts))
    metrics.read(
        "uplink",
        "Batches, messages, readings and events taken in.",
        lambda: {name: getattr(uplink, name) for name in ("batches", "messages", "readings", "events", "retries", "lost")},
    )
    metrics.read(
        "upkeep",
        "Hours of devices summed up, and rows whose time was over.",
        lambda: {"hours_summed": program.loops.rollups.marks, "rows_forgotten": program.loops.retention.forgotten},
    )
    metrics.read(
        "deliveries",
        "Webhook attempts.",
        lambda: {name: getattr(deliveries, name) for name in ("under_way", "succeeded", "failed", "cut_short", "put_off")},
    )
    metrics.read(
        "commands",
        "Commands handed to devices, and results that changed nothing.",
        lambda: {"sent": services.dispatch.sent, "resent": services.dispatch.resent, **dict(services.reports.ignored)},
    )
    metrics.read("feed", "Live feed.", lambda: {key: getattr(outside.feed, key) for key in ("clients", "published", "dropped")})
    metrics.read(
        "worker_failures",
        "How often each worker failed and was started again.",
        lambda: {watch.loop.name: watch.failures for watch in program.supervisor.watches},
    )
