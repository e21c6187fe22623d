"""Fire due schedule slots: each edge runs once, or an event explains why not.

One transaction stores everything about an edge (the queued command, its event, the slot's next edge, and the edge's key, which is
unique in the database), so that a crash leaves all of it or nothing. Many slots share a transaction: they are loaded together,
decided without I/O, and written together. A batch is bounded, so that other tasks run between batches.

A failed batch is retried slot by slot. A slot that an internal error makes undecidable is quarantined, so that it does not block
the slots due after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from domain.commands.model import DEFAULT_TTL_MS, MAX_TTL_MS, AutomationCommand, CommandRequest, Execution, TriggeredBy
from domain.commands.submission import CommandSubmissionService
from domain.devices.absence import AbsenceTracker
from domain.devices.channels import on_channel
from domain.devices.model import Device, DeviceStatus
from domain.events.model import SCHEDULE_FIRED
from domain.kernel.caller import SystemCaller
from domain.kernel.clock import MAX_INSTANCE_SKEW_MS, SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, EventKind, Json
from domain.kernel.errors import DomainError, NotFound, PermissionDenied, Unavailable
from domain.kernel.ids import DeviceId
from domain.kernel.life import DatabaseLife
from domain.kernel.unit_of_work import UnitOfWork
from domain.schedules.device_plan import DevicePlanSyncService, is_firmware_synced, runs_on_device
from domain.schedules.edges import (
    RAN_OUTCOMES,
    DueScheduleEdgeDecision,
    ScheduleEdgeOccurrence,
    apply_edge_outcome,
    decide_due_edge,
    fired_outcome,
    first_edge_after,
    max_lateness_s,
    next_edge_after,
    outcome_for_error,
)
from domain.schedules.model import (
    NOT_HELD,
    PLAIN_OFF,
    DecidedScheduleEdge,
    EdgeOutcome,
    MisfirePolicy,
    OfflineScheduleEdge,
    Schedule,
    ScheduledCommand,
    ScheduleStatus,
    SwitchEdge,
)
from domain.schedules.ports import RecurrenceCalculator, SchedulesTx

SCHEDULE_SKIPPED: Final = "schedule_skipped"
MAY_HAVE_RUN: Final = "the database was restored, and nobody knows whether it ran before; it is not run twice."
MAX_LEFT_EDGES = 16
"""Of one slot that were due while no device could be heard; the earliest of more are not told one by one."""
SHORT_BATCH, LONG_BATCH = 80, 320
"""Slots per transaction. More slots share round trips and one commit. But where there is a single writer, all other changes wait
for a batch: there it is short."""


@dataclass(frozen=True, slots=True)
class ScheduleEdgeResult:
    """The outcome of an edge. `reason` is empty when it ran."""

    outcome: EdgeOutcome
    reason: str = ""
    execution: Execution | None = None


@dataclass(frozen=True, slots=True)
class DueSlotWithDecision:
    """A due slot with its device (None if deleted) and the decision about its edges."""

    schedule: Schedule
    device: Device | None
    decision: DueScheduleEdgeDecision

    @property
    def first_superseded(self) -> ScheduleEdgeOccurrence | None:
        schedule = self.schedule
        if self.decision.superseded_count == 0 or schedule.next_edge is None or schedule.next_fire_ts is None:
            return None
        return ScheduleEdgeOccurrence(schedule.next_fire_ts, schedule.next_edge)


class SlotDecisionFailedError(Exception):
    """One slot could not be decided; its transaction was rolled back."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule.schedule_id)
        self.schedule = schedule


@service
class ScheduleFiringService:
    uow: UnitOfWork[SchedulesTx]
    clock: Clock
    recurrence: RecurrenceCalculator
    commands: CommandSubmissionService
    plans: DevicePlanSyncService
    absence: AbsenceTracker
    batch_size: int = SHORT_BATCH
    life: DatabaseLife = field(default_factory=DatabaseLife)
    doubtful_until_ms: Callable[[], int | None] = lambda: None
    """While the clock is in doubt since a start that was far ahead, that start, Unix ms: a slot that runs once and was due until
    then waits, because its one chance would be gone if the clock is wrong. A slot with a rule has another."""

    async def next_due_ts(self) -> int | None:
        async with self.uow.read() as tx:
            return await tx.schedules.next_due_ts(self._once_after_ts())

    def _once_after_ts(self) -> int:
        return (self.doubtful_until_ms() or 0) // SECOND_MS

    async def compute_anew(self, now_ms: int) -> int:
        """Call at the start and when the clock was set back: slots with a rule that were decided by a clock that was ahead get
        their next edge after the present that has not run, also those that ended. Returns how many. Raises Unavailable."""
        total = 0
        while True:
            async with self.uow.write(caller=None, background=True) as tx:
                found = await tx.schedules.list_decided_after(now_ms + MAX_INSTANCE_SKEW_MS, self.batch_size)
                if found:
                    await tx.schedules.save_decisions(await self._computed_anew(tx, found, now_ms), [])
            total += len(found)
            if len(found) < self.batch_size:
                return total

    async def _computed_anew(self, tx: SchedulesTx, found: Sequence[Schedule], now_ms: int) -> Sequence[Schedule]:
        now_ts = now_ms // SECOND_MS
        ids = {one.schedule_id for one in found}
        await tx.schedules.forget_skipped_edges(ids, now_ts)
        decided = set(await tx.schedules.list_decided_edges(ids, now_ts))
        anew = []
        for schedule in found:
            edge: ScheduleEdgeOccurrence | None = first_edge_after(schedule, now_ts - 1, self.recurrence)
            key = (schedule.schedule_id, schedule.revision)
            while edge is not None and (*key, edge.edge, edge.ts) in decided:
                edge = next_edge_after(schedule, edge, self.recurrence)
            if schedule.status is ScheduleStatus.COMPLETED:
                if edge is None or await tx.schedules.get_by_slot(schedule.device_id, schedule.slot) is not None:
                    edge = None  # it has ended indeed, or the slot is somebody else's by now
                else:
                    schedule = replace(schedule, status=ScheduleStatus.PENDING)
            if edge is not None and (schedule.next_fire_ts is None or edge.ts < schedule.next_fire_ts):
                schedule = replace(schedule, next_fire_ts=edge.ts, next_edge=edge.edge)
            anew.append(replace(schedule, updated_ms=now_ms))
        return anew

    async def fire_due(self, now_ms: int, *, lateness_allowance_s: int = 0, limit: int | None = None) -> int:
        """Decide a batch of due slots and return how many. Call again until 0. `lateness_allowance_s`: lateness that the slots
        did not cause. Raises Unavailable when the database does not answer, SlotDecisionFailedError for a slot to quarantine."""
        due: Sequence[Schedule] = ()
        try:
            async with self.uow.write(caller=None, background=True) as tx:
                due = await tx.schedules.list_due(now_ms // SECOND_MS, limit or self.batch_size, self._once_after_ts())
                if due:
                    await self._decide(tx, due, now_ms, lateness_allowance_s)
        except (Unavailable, SlotDecisionFailedError):
            raise
        except Exception as error:
            if len(due) < 2:
                raise (SlotDecisionFailedError(due[0]) if due else error) from error
            return sum([await self.fire_due(now_ms, lateness_allowance_s=lateness_allowance_s, limit=1) for _ in due])
        return len(due)

    async def quarantine(self, stuck: Schedule, now_ms: int) -> None:
        """Skip the due edge of an undecidable slot and emit an event; complete the slot if its next edge cannot be found
        either."""
        async with self.uow.write(caller=None) as tx:
            schedule = await tx.schedules.get_by_slot(stuck.device_id, stuck.slot)
            if schedule is None or schedule.schedule_id != stuck.schedule_id or schedule.next_edge is None:
                return
            edge, outcome = schedule.next_edge, EdgeOutcome.SKIPPED_COMMAND
            try:
                after = decide_due_edge(schedule, now_ms // SECOND_MS, self.recurrence).next_edge
            except Exception:
                after = None
            await tx.schedules.save(apply_edge_outcome(schedule, edge, outcome, after, now_ms))
            text = f"Slot {schedule.slot} was skipped because of an internal error. See the service log."
            tx.emit(_schedule_event(schedule, SCHEDULE_SKIPPED, text, now_ms, edge, {"reason": outcome.value}, None))

    async def _decide(self, tx: SchedulesTx, due: Sequence[Schedule], now_ms: int, lateness_allowance_s: int) -> None:
        found = await tx.devices.list_by_ids({schedule.device_id for schedule in due})
        devices = {device.device_id: device for device in found}
        slots = [self._evaluate_slot(schedule, devices, now_ms, lateness_allowance_s) for schedule in due]
        decided = list(zip(slots, await self._queue_commands(tx, slots, now_ms), strict=True))
        changing = {slot.device.device_id: slot.device for slot in slots if slot.device and slot.decision.next_edge is None}
        rows = await self.plans.plan_rows_by_device(tx, list(changing.values()))
        after = [
            apply_edge_outcome(slot.schedule, slot.decision.due.edge, result.outcome, slot.decision.next_edge, now_ms)
            for slot, result in decided
        ]
        edges = [edge for slot, result in decided for edge in self._edge_records(slot, result.outcome)]
        await tx.schedules.save_decisions(after, edges)
        left = [slot for slot, result in decided if result.outcome is EdgeOutcome.LEFT_TO_DEVICE]
        if left:
            await tx.schedules.add_left([edge for slot in left for edge in self._left_edges(slot)])
        for slot, result in decided:
            self._emit_edge_events(tx, slot, result, now_ms)
        await self.plans.revise_many_if_changed(tx, list(changing.values()), rows)

    def _evaluate_slot(
        self, schedule: Schedule, devices: Mapping[DeviceId, Device], now_ms: int, lateness_allowance_s: int
    ) -> DueSlotWithDecision:
        try:
            decision = decide_due_edge(schedule, now_ms // SECOND_MS, self.recurrence, lateness_allowance_s)
        except Exception as error:
            raise SlotDecisionFailedError(schedule) from error
        return DueSlotWithDecision(schedule, devices.get(schedule.device_id), decision)

    async def _queue_commands(
        self, tx: SchedulesTx, slots: Sequence[DueSlotWithDecision], now_ms: int
    ) -> Sequence[ScheduleEdgeResult]:
        """Queue the commands of the slots that run. Returns one result per slot."""
        first = [self._decide_without_command(slot) or automation_command(slot, now_ms) for slot in slots]
        commands = [one for one in first if isinstance(one, AutomationCommand)]
        outcomes = iter(await self.commands.run_unattended(tx, commands, now_ms) if commands else ())
        return [
            one if isinstance(one, ScheduleEdgeResult) else command_result(slot, next(outcomes))
            for slot, one in zip(slots, first, strict=True)
        ]

    def _decide_without_command(self, slot: DueSlotWithDecision) -> ScheduleEdgeResult | None:
        """The result of a slot that runs no command; None for the others."""
        schedule, decision = slot.schedule, slot.decision
        if self._is_left(slot):
            return ScheduleEdgeResult(EdgeOutcome.LEFT_TO_DEVICE)
        if may_have_run(self.life, slot):
            return ScheduleEdgeResult(EdgeOutcome.MISSED, MAY_HAVE_RUN)
        if decision.is_missed:
            return ScheduleEdgeResult(
                EdgeOutcome.MISSED, f"it was due {decision.late_s} s ago, and {describe_misfire_policy(schedule)}"
            )
        return None

    def _is_left(self, slot: DueSlotWithDecision) -> bool:
        """Whether the device is to say what became of the edge: an offline one that holds it, or any that was not heard then."""
        schedule, device = slot.schedule, slot.device
        if device is None or schedule.created_by is None or not device.is_active:
            return False
        due = slot.decision.due
        if self._was_absent_for(device, due):
            return True
        if is_firmware_synced(device, schedule) and self.absence.stepped_over_s(due.ts * SECOND_MS):
            return True
        return not slot.decision.is_missed and runs_on_device(device, schedule)

    def _was_absent_for(self, device: Device, due: ScheduleEdgeOccurrence) -> bool:
        since_ms = self.absence.unheard_since_ms(device)
        return since_ms is not None and due.ts * SECOND_MS > since_ms

    def _due_edges(self, slot: DueSlotWithDecision) -> Sequence[tuple[ScheduleEdgeOccurrence, ScheduleEdgeOccurrence | None]]:
        """Those to settle with the device, each with the next: the latest one, and where the device holds them and could not be
        heard, all since then."""
        schedule, device, decision = slot.schedule, slot.device, slot.decision
        latest = (decision.due, decision.next_edge)
        if device is None or not is_firmware_synced(device, schedule) or not self._was_absent_for(device, decision.due):
            return [latest]
        assert schedule.next_fire_ts is not None  # noqa: S101 - it is due
        assert schedule.next_edge is not None  # noqa: S101
        found, edge = [latest], ScheduleEdgeOccurrence(schedule.next_fire_ts, schedule.next_edge)
        while edge != decision.due and len(found) < MAX_LEFT_EDGES:
            following = next_edge_after(schedule, edge, self.recurrence)
            if following is None:
                break
            if self._was_absent_for(device, edge):
                found.insert(-1, (edge, following))
            edge = following
        return found

    def _left_edges(self, slot: DueSlotWithDecision) -> Sequence[OfflineScheduleEdge]:
        """One that the firmware does not hold waits for the device's word, or for the end of the grace."""
        schedule, device = slot.schedule, slot.device
        assert device is not None  # noqa: S101 - only a device that was loaded can hold its plan
        plan_rev, resolve_ms = device.sched_rev, None
        if not is_firmware_synced(device, schedule):
            plan_rev, resolve_ms = NOT_HELD, self.clock.steady_ms() + self.absence.grace_left_ms
        return [
            OfflineScheduleEdge(
                schedule.schedule_id,
                schedule.device_id,
                schedule.revision,
                due.edge,
                due.ts,
                plan_rev,
                None if following is None else following.ts,
                _command_for_edge(schedule, due.edge).channel,
                resolve_ms=resolve_ms,
            )
            for due, following in self._due_edges(slot)
        ]

    def _edge_records(self, slot: DueSlotWithDecision, outcome: EdgeOutcome) -> Sequence[DecidedScheduleEdge]:
        """The decided edge, and those before it: left to the device as well, or the first of the superseded ones."""
        schedule, due, at_ms = slot.schedule, slot.decision.due, self.clock.now_ms()

        def record(edge: ScheduleEdgeOccurrence, outcome: EdgeOutcome) -> DecidedScheduleEdge:
            return DecidedScheduleEdge(schedule.schedule_id, schedule.revision, edge.edge, edge.ts, at_ms, outcome)

        left = [edge for edge, _ in self._due_edges(slot)] if outcome is EdgeOutcome.LEFT_TO_DEVICE else [due]
        first = slot.first_superseded
        superseded = [] if first is None or first in left else [record(first, EdgeOutcome.SUPERSEDED)]
        return [*(record(edge, outcome) for edge in left), *superseded]

    def _emit_edge_events(self, tx: SchedulesTx, slot: DueSlotWithDecision, result: ScheduleEdgeResult, now_ms: int) -> None:
        is_left, first = result.outcome is EdgeOutcome.LEFT_TO_DEVICE, slot.first_superseded
        if first is not None and not (is_left and first in [edge for edge, _ in self._due_edges(slot)]):
            tx.emit(_superseded_event(slot, first.edge, first.ts, now_ms))
        if not is_left:  # announced when the device confirms it
            tx.emit(edge_event(slot, result, now_ms))


def may_have_run(life: DatabaseLife, slot: DueSlotWithDecision) -> bool:
    """Whether the edge may have run in an earlier life of the database, and must not run twice. Switching off twice does no
    harm, and leaving something on may."""
    due = slot.decision.due
    command = _command_for_edge(slot.schedule, due.edge)
    return life.may_have_run(due.ts * SECOND_MS) and not (command.command == PLAIN_OFF.command and command.is_plain)


def automation_command(slot: DueSlotWithDecision, now_ms: int) -> AutomationCommand | ScheduleEdgeResult:
    """The command of the slot's edge, or the result if the slot may run none."""
    schedule, device, decision = slot.schedule, slot.device, slot.decision
    if device is None or device.status is DeviceStatus.DELETING:
        return _denied_result(NotFound.for_resource("device", schedule.device_id))
    if schedule.created_by is None:
        return _denied_result(
            PermissionDenied("the member who saved it has left the account. Save it again.", code="GRANT_MISSING")
        )
    slot_command = _command_for_edge(schedule, decision.due.edge)
    caller = SystemCaller(schedule.account_id, "schedule", schedule.schedule_id, on_behalf_of=schedule.created_by)
    request = CommandRequest(
        device,
        slot_command.command,
        slot_command.params,
        _command_ttl_ms(schedule, decision, now_ms),
        channel=slot_command.channel,
    )
    return AutomationCommand(caller, request, TriggeredBy.SCHEDULE)


def command_result(slot: DueSlotWithDecision, outcome: Execution | DomainError) -> ScheduleEdgeResult:
    if isinstance(outcome, DomainError):
        return _denied_result(outcome)
    return ScheduleEdgeResult(fired_outcome(slot.decision.late_s), execution=outcome)


def _denied_result(error: DomainError) -> ScheduleEdgeResult:
    return ScheduleEdgeResult(outcome_for_error(error), error.message)


def describe_misfire_policy(schedule: Schedule) -> str:
    if schedule.misfire is MisfirePolicy.SKIP:
        return "this slot skips missed edges."
    return f"this slot runs at most {max_lateness_s(schedule)} s late."


def _command_for_edge(schedule: Schedule, edge: SwitchEdge) -> ScheduledCommand:
    return schedule.on_command if edge is SwitchEdge.ON else schedule.off_command


def _command_ttl_ms(schedule: Schedule, decision: DueScheduleEdgeDecision, now_ms: int) -> int:
    """How long an offline device may take to reconnect and still get the command: the slot's misfire grace, but not past the
    next edge."""
    ttl_ms = max(DEFAULT_TTL_MS, (max_lateness_s(schedule) - decision.late_s) * SECOND_MS)
    if decision.next_edge is not None:
        ttl_ms = min(ttl_ms, max(SECOND_MS, decision.next_edge.ts * SECOND_MS - now_ms))
    return min(ttl_ms, MAX_TTL_MS)


def edge_event(slot: DueSlotWithDecision, result: ScheduleEdgeResult, now_ms: int) -> DomainEvent:
    schedule, decision = slot.schedule, slot.decision
    extra: dict[str, Json] = {"lateSeconds": decision.late_s}
    edge = decision.due.edge
    if result.outcome in RAN_OUTCOMES:
        command = _command_for_edge(schedule, edge)
        shown = on_channel(command.command, command.channel)
        text = f"Slot {schedule.slot} switched {edge}: {shown}"
        if result.outcome is EdgeOutcome.RAN_ON_DEVICE:
            text = f"Slot {schedule.slot} switched {edge} by the device: {shown}"
        if result.execution is not None:
            extra["executionId"] = result.execution.execution_id
        return _schedule_event(schedule, SCHEDULE_FIRED, text, now_ms, edge, extra, slot.device)
    extra["reason"] = result.outcome.value
    text = f"Slot {schedule.slot} did not switch {edge}: {result.reason}"
    return _schedule_event(schedule, SCHEDULE_SKIPPED, text, now_ms, edge, extra, slot.device)


def _superseded_event(slot: DueSlotWithDecision, edge: SwitchEdge, due_ts: int, now_ms: int) -> DomainEvent:
    """The event of edges that a later one superseded: it names the first and gives their number."""
    schedule, decision = slot.schedule, slot.decision
    late_s = now_ms // SECOND_MS - due_ts
    extra: dict[str, Json] = {"reason": EdgeOutcome.SUPERSEDED.value, "lateSeconds": late_s, "edges": decision.superseded_count}
    text = f"Slot {schedule.slot}: {decision.superseded_count} missed edge(s) skipped because {decision.due.edge} is due"
    return _schedule_event(schedule, SCHEDULE_SKIPPED, text, now_ms, edge, extra, slot.device)


def _schedule_event(
    schedule: Schedule, kind: EventKind, text: str, now_ms: int, edge: SwitchEdge, extra: dict[str, Json], device: Device | None
) -> DomainEvent:
    return DomainEvent(
        account_id=schedule.account_id,
        kind=kind,
        description=text,
        at_ms=now_ms,
        source=f"schedule:{schedule.schedule_id}",
        device_id=schedule.device_id,
        data={
            "scheduleId": schedule.schedule_id,
            "slot": schedule.slot,
            "edge": edge.value,
            "command": _command_for_edge(schedule, edge).command,
            "channel": _command_for_edge(schedule, edge).channel,
            **extra,
        },
        device_name=None if device is None else device.name,
    )
