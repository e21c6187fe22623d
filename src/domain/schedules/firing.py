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

from domain.commands.model import DEFAULT_TTL_MS, MAX_TTL_MS, AutomationCommand, CommandRequest, Execution, TriggeredBy
from domain.commands.ports import AutomationCommandRunner
from domain.devices.model import Device, DeviceStatus
from domain.kernel.caller import SystemCaller
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.errors import DomainError, NotFound, PermissionDenied, Unavailable
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.schedules import policy
from domain.schedules.device_plan import runs_on_device
from domain.schedules.device_plan_sync import DevicePlanService
from domain.schedules.due_edges import DueEdgeDecision, decide_due_edge, max_lateness_s
from domain.schedules.edge_events import (
    DueSlot,
    EdgeResult,
    command_for_edge,
    describe_misfire_policy,
    edge_event,
    quarantined_event,
    superseded_event,
)
from domain.schedules.model import EdgeOutcome, Schedule, ScheduleEdgeRecord
from domain.schedules.ports import Recurrence, ScheduleTx

BATCH_SIZE = 160
"""Slots in one transaction: more of them share a commit and its wait for the disk, but hold SQLite's one writer for longer."""


class UndecidableSlotError(Exception):
    """One slot could not be decided; nothing of its batch was kept."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule.schedule_id)
        self.schedule = schedule


class ScheduleFiringService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[ScheduleTx],
        clock: Clock,
        recurrence: Recurrence,
        commands: AutomationCommandRunner,
        plans: DevicePlanService,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._recurrence = recurrence
        self._commands = commands
        self._plans = plans

    async def next_due_ts(self) -> int | None:
        async with self._uow.read() as tx:
            return await tx.schedules.next_due_ts()

    async def fire_due(self, now_ms: int, *, forgiven_s: int = 0, limit: int = BATCH_SIZE) -> int:
        """Decide a batch of due slots; how many. Call again until 0. `forgiven_s`: how much of their lateness is no fault of
        the slot's. Raises Unavailable when the database does not answer, and Stuck for a slot to set aside."""
        due: Sequence[Schedule] = ()
        try:
            async with self._uow.write() as tx:
                due = await tx.schedules.list_due(now_ms // SECOND_MS, limit)
                if due:
                    await self._decide(tx, due, now_ms, forgiven_s)
        except (Unavailable, UndecidableSlotError):
            raise
        except Exception as error:
            if len(due) < 2:
                raise (UndecidableSlotError(due[0]) if due else error) from error
            return sum([await self.fire_due(now_ms, forgiven_s=forgiven_s, limit=1) for _ in due])
        return len(due)

    async def quarantine(self, stuck: Schedule, now_ms: int) -> None:
        """Pass over the due edge of a slot that cannot be decided, and say so; if even that fails, stop the slot."""
        async with self._uow.write() as tx:
            schedule = await tx.schedules.get_by_slot(stuck.device_id, stuck.slot)
            if schedule is None or schedule.schedule_id != stuck.schedule_id or schedule.next_edge is None:
                return
            edge, outcome = schedule.next_edge, EdgeOutcome.SKIPPED_COMMAND
            try:
                after = decide_due_edge(schedule, now_ms // SECOND_MS, self._recurrence).next_edge
            except Exception:
                after = None
            await tx.schedules.save(policy.apply_edge_outcome(schedule, edge, outcome, after, now_ms))
            await tx.emit(quarantined_event(schedule, edge, outcome, now_ms))

    async def _decide(self, tx: ScheduleTx, due: Sequence[Schedule], now_ms: int, forgiven_s: int) -> None:
        found = await tx.devices.list_by_ids({schedule.device_id for schedule in due})
        devices = {device.device_id: device for device in found}
        cases = [self._evaluate_slot(schedule, devices, now_ms, forgiven_s) for schedule in due]
        decisions = await self._queue_commands(tx, cases, now_ms)
        changing = {case.device.device_id: case.device for case in cases if case.device and case.decision.next_edge is None}
        rows = await self._plans.plan_rows_by_device(tx, list(changing.values()))
        after = [
            policy.apply_edge_outcome(case.schedule, case.decision.due.edge, decision.outcome, case.decision.next_edge, now_ms)
            for case, decision in zip(cases, decisions, strict=True)
        ]
        edges = [
            edge
            for case, one in zip(cases, decisions, strict=True)
            for edge in _edge_records(case, one.outcome, self._clock.now_ms())
        ]
        await tx.schedules.save_decisions(after, edges)
        for case, decision in zip(cases, decisions, strict=True):
            await _emit_edge_events(tx, case, decision, now_ms)
        await self._plans.revise_many_if_changed(tx, list(changing.values()), rows)

    def _evaluate_slot(self, schedule: Schedule, devices: Mapping[DeviceId, Device], now_ms: int, forgiven_s: int) -> DueSlot:
        try:
            this = decide_due_edge(schedule, now_ms // SECOND_MS, self._recurrence, forgiven_s)
        except Exception as error:
            raise UndecidableSlotError(schedule) from error
        return DueSlot(schedule, devices.get(schedule.device_id), this)

    async def _queue_commands(self, tx: ScheduleTx, cases: Sequence[DueSlot], now_ms: int) -> Sequence[EdgeResult]:
        """What becomes of each; the commands of those that run are queued."""
        first = [_decide_without_command(case) or _automation_command(case, now_ms) for case in cases]
        errands = [one for one in first if isinstance(one, AutomationCommand)]
        outcomes = iter(await self._commands.run_unattended(tx, errands, now_ms) if errands else ())
        return [
            one if isinstance(one, EdgeResult) else _command_result(case, next(outcomes))
            for case, one in zip(cases, first, strict=True)
        ]


def _decide_without_command(case: DueSlot) -> EdgeResult | None:
    """The decision, where no command has to be asked for it."""
    schedule, device, this = case.schedule, case.device, case.decision
    if this.is_missed:
        return EdgeResult(EdgeOutcome.MISSED, f"it was due {this.late_s} s ago, and {describe_misfire_policy(schedule)}")
    if device is None or device.status is DeviceStatus.DELETING:
        return _denied_result(NotFound.for_resource("device", schedule.device_id))
    if schedule.created_by is None:
        return _denied_result(PermissionDenied("whoever set it is no longer a member. Save it again.", code="GRANT_MISSING"))
    if device.is_active and runs_on_device(device, schedule):
        return EdgeResult(EdgeOutcome.RAN_ON_DEVICE)
    return None


def _automation_command(case: DueSlot, now_ms: int) -> AutomationCommand:
    schedule, device, this = case.schedule, case.device, case.decision
    assert device is not None  # noqa: S101 - asked before
    order = command_for_edge(schedule, this.due.edge)
    caller = SystemCaller(schedule.account_id, "schedule", schedule.schedule_id, on_behalf_of=schedule.created_by)
    request = CommandRequest(device, order.command, order.params, _command_ttl_ms(schedule, this, now_ms))
    return AutomationCommand(caller, request, TriggeredBy.SCHEDULE)


def _command_result(case: DueSlot, outcome: Execution | DomainError) -> EdgeResult:
    if isinstance(outcome, DomainError):
        return _denied_result(outcome)
    return EdgeResult(policy.fired_outcome(case.decision.late_s), execution=outcome)


def _denied_result(error: DomainError) -> EdgeResult:
    return EdgeResult(policy.outcome_for_error(error), error.message)


def _edge_records(case: DueSlot, outcome: EdgeOutcome, at_ms: int) -> Sequence[ScheduleEdgeRecord]:
    """The edge that was decided, and the first of those passed over for it."""
    schedule, due = case.schedule, case.decision.due
    decided = ScheduleEdgeRecord(schedule.schedule_id, schedule.revision, due.edge, due.ts, at_ms, outcome)
    if case.decision.superseded_count == 0 or schedule.next_edge is None or schedule.next_fire_ts is None:
        return [decided]
    first, first_ts = schedule.next_edge, schedule.next_fire_ts
    passed = ScheduleEdgeRecord(schedule.schedule_id, schedule.revision, first, first_ts, at_ms, EdgeOutcome.SUPERSEDED)
    return [decided, passed]


async def _emit_edge_events(tx: ScheduleTx, case: DueSlot, decision: EdgeResult, now_ms: int) -> None:
    schedule = case.schedule
    if case.decision.superseded_count and schedule.next_edge is not None and schedule.next_fire_ts is not None:
        await tx.emit(superseded_event(case, schedule.next_edge, schedule.next_fire_ts, now_ms))
    await tx.emit(edge_event(case, decision, now_ms))


def _command_ttl_ms(schedule: Schedule, this: DueEdgeDecision, now_ms: int) -> int:
    """How long a device that is away may still come back for it: as long as the slot makes up for what is late, but never into
    the next edge."""
    ttl_ms = max(DEFAULT_TTL_MS, (max_lateness_s(schedule) - this.late_s) * SECOND_MS)
    if this.next_edge is not None:
        ttl_ms = min(ttl_ms, max(SECOND_MS, this.next_edge.ts * SECOND_MS - now_ms))
    return min(ttl_ms, MAX_TTL_MS)
