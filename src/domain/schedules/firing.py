"""Running what is due: each edge once, or told why not.

What an edge does (the queued command, its event, the slot's next edge, and the edge's own key, unique in the database) is one
transaction, so that a crash at any point leaves all of it or nothing. Many slots share one: all that must be known of them is
looked up together, each is decided without I/O, and what became of them is written together. A batch is bounded, so that between
two of them everybody else gets a turn.

A batch that fails is done again one by one; a slot that cannot be decided because of a fault of ours is set aside: it must not
hold up all the others due after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from domain.commands.desk import Errand, Request
from domain.commands.model import DEFAULT_TTL_MS, MAX_TTL_MS, Execution, TriggeredBy
from domain.devices.model import Device, DeviceStatus
from domain.kernel.caller import System
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.errors import DomainError, NotFound, Refused, Unavailable
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.schedules import policy
from domain.schedules.edges import Turn, allowed_late_s, turn
from domain.schedules.firmware import runs_itself
from domain.schedules.model import FiredEdge, Outcome, Schedule
from domain.schedules.plans import PlanService
from domain.schedules.ports import Recurrence, SchedulesTx
from domain.schedules.telling import Case, Decision, order_of, told, told_set_aside, told_superseded, tolerance

BATCH = 160
"""Slots in one transaction: more of them share a commit and its wait for the disk, but hold SQLite's one writer for longer."""


class UnattendedCommands(Protocol):
    """What the commands part does for commands that run with nobody present."""

    async def run_all(
        self, tx: SchedulesTx, errands: Sequence[Errand], now_ms: int
    ) -> Sequence[Execution | DomainError]: ...


class Stuck(Exception):
    """One slot could not be decided; nothing of its batch was kept."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule.schedule_id)
        self.schedule = schedule


class FiringService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[SchedulesTx],
        clock: Clock,
        recurrence: Recurrence,
        commands: UnattendedCommands,
        plans: PlanService,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._recurrence = recurrence
        self._commands = commands
        self._plans = plans

    async def next_due_ts(self) -> int | None:
        async with self._uow.read() as tx:
            return await tx.schedules.next_due_ts()

    async def fire_due(self, now_ms: int, *, forgiven_s: int = 0, limit: int = BATCH) -> int:
        """Decide a batch of due slots; how many. Call again until 0. `forgiven_s`: how much of their lateness is no fault of
        the slot's. Raises Unavailable when the database does not answer, and Stuck for a slot to set aside."""
        due: Sequence[Schedule] = ()
        try:
            async with self._uow.write() as tx:
                due = await tx.schedules.due(now_ms // SECOND_MS, limit)
                if due:
                    await self._decide(tx, due, now_ms, forgiven_s)
        except (Unavailable, Stuck):
            raise
        except Exception as error:
            if len(due) < 2:
                raise (Stuck(due[0]) if due else error) from error
            return sum([await self.fire_due(now_ms, forgiven_s=forgiven_s, limit=1) for _ in due])
        return len(due)

    async def set_aside(self, stuck: Schedule, now_ms: int) -> None:
        """Pass over the due edge of a slot that cannot be decided, and say so; if even that fails, stop the slot."""
        async with self._uow.write() as tx:
            schedule = await tx.schedules.in_slot(stuck.device_id, stuck.slot)
            if schedule is None or schedule.schedule_id != stuck.schedule_id or schedule.next_edge is None:
                return
            edge, outcome = schedule.next_edge, Outcome.SKIPPED_COMMAND
            try:
                after = turn(schedule, now_ms // SECOND_MS, self._recurrence).following
            except Exception:
                after = None
            await tx.schedules.save(policy.decided(schedule, edge, outcome, after, now_ms))
            await tx.record(told_set_aside(schedule, edge, outcome, now_ms))

    async def _decide(self, tx: SchedulesTx, due: Sequence[Schedule], now_ms: int, forgiven_s: int) -> None:
        found = await tx.devices.find_all({schedule.device_id for schedule in due})
        devices = {device.device_id: device for device in found}
        cases = [self._case(schedule, devices, now_ms, forgiven_s) for schedule in due]
        decisions = await self._run(tx, cases, now_ms)
        changing = {case.device.device_id: case.device for case in cases if case.device and case.this.following is None}
        rows = await self._plans.rows_of(tx, list(changing.values()))
        after = [
            policy.decided(case.schedule, case.this.due.edge, decision.outcome, case.this.following, now_ms)
            for case, decision in zip(cases, decisions, strict=True)
        ]
        edges = [
            edge
            for case, one in zip(cases, decisions, strict=True)
            for edge in _edges(case, one.outcome, self._clock.now_ms())
        ]
        await tx.schedules.decide_all(after, edges)
        for case, decision in zip(cases, decisions, strict=True):
            await _tell(tx, case, decision, now_ms)
        await self._plans.revise_all(tx, list(changing.values()), rows)

    def _case(
        self, schedule: Schedule, devices: Mapping[DeviceId, Device], now_ms: int, forgiven_s: int
    ) -> Case:
        try:
            this = turn(schedule, now_ms // SECOND_MS, self._recurrence, forgiven_s)
        except Exception as error:
            raise Stuck(schedule) from error
        return Case(schedule, devices.get(schedule.device_id), this)

    async def _run(self, tx: SchedulesTx, cases: Sequence[Case], now_ms: int) -> Sequence[Decision]:
        """What becomes of each; the commands of those that run are queued."""
        first = [_without_command(case) or _errand(case, now_ms) for case in cases]
        errands = [one for one in first if isinstance(one, Errand)]
        outcomes = iter(await self._commands.run_all(tx, errands, now_ms) if errands else ())
        return [
            one if isinstance(one, Decision) else _decided(case, next(outcomes))
            for case, one in zip(cases, first, strict=True)
        ]


def _without_command(case: Case) -> Decision | None:
    """The decision, where no command has to be asked for it."""
    schedule, device, this = case.schedule, case.device, case.this
    if this.missed:
        return Decision(Outcome.MISSED, f"it was due {this.late_s} s ago, and {tolerance(schedule)}")
    if device is None or device.status is DeviceStatus.DELETING:
        return _refused(NotFound.of("device", schedule.device_id))
    if schedule.created_by is None:
        return _refused(Refused("whoever set it is no longer a member. Save it again.", code="GRANT_MISSING"))
    if device.enabled and runs_itself(device, schedule):
        return Decision(Outcome.RAN_ON_DEVICE)
    return None


def _errand(case: Case, now_ms: int) -> Errand:
    schedule, device, this = case.schedule, case.device, case.this
    assert device is not None  # noqa: S101 - asked before
    order = order_of(schedule, this.due.edge)
    caller = System(schedule.account_id, "schedule", schedule.schedule_id, on_behalf_of=schedule.created_by)
    request = Request(device, order.command, order.params, _ttl_ms(schedule, this, now_ms))
    return Errand(caller, request, TriggeredBy.SCHEDULE)


def _decided(case: Case, outcome: Execution | DomainError) -> Decision:
    if isinstance(outcome, DomainError):
        return _refused(outcome)
    return Decision(policy.outcome_on_time(case.this.late_s), execution=outcome)


def _refused(error: DomainError) -> Decision:
    return Decision(policy.outcome_of(error), error.message)


def _edges(case: Case, outcome: Outcome, at_ms: int) -> Sequence[FiredEdge]:
    """The edge that was decided, and the first of those passed over for it."""
    schedule, due = case.schedule, case.this.due
    decided = FiredEdge(schedule.schedule_id, schedule.revision, due.edge, due.ts, at_ms, outcome)
    if case.this.superseded == 0 or schedule.next_edge is None or schedule.next_fire_ts is None:
        return [decided]
    first, first_ts = schedule.next_edge, schedule.next_fire_ts
    passed = FiredEdge(schedule.schedule_id, schedule.revision, first, first_ts, at_ms, Outcome.SUPERSEDED)
    return [decided, passed]


async def _tell(tx: SchedulesTx, case: Case, decision: Decision, now_ms: int) -> None:
    schedule = case.schedule
    if case.this.superseded and schedule.next_edge is not None and schedule.next_fire_ts is not None:
        await tx.record(told_superseded(case, schedule.next_edge, schedule.next_fire_ts, now_ms))
    await tx.record(told(case, decision, now_ms))


def _ttl_ms(schedule: Schedule, this: Turn, now_ms: int) -> int:
    """How long a device that is away may still come back for it: as long as the slot makes up for what is late, but never into
    the next edge."""
    ttl_ms = max(DEFAULT_TTL_MS, (allowed_late_s(schedule) - this.late_s) * SECOND_MS)
    if this.following is not None:
        ttl_ms = min(ttl_ms, max(SECOND_MS, this.following.ts * SECOND_MS - now_ms))
    return min(ttl_ms, MAX_TTL_MS)
