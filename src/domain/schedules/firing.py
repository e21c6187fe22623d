"""Fire due schedule slots: each edge runs once, or an event explains why not.

One transaction stores everything about an edge (the queued command, its event, the slot's next edge, and the edge's key, which is
unique in the database), so that a crash leaves all of it or nothing. Many slots share a transaction: they are loaded together,
decided without I/O, and written together. A batch is bounded, so that other tasks run between batches.

A failed batch is retried slot by slot. A slot that an internal error makes undecidable is quarantined, so that it does not block
the slots due after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.commands.model import AutomationCommand
from domain.commands.submission import CommandSubmissionService
from domain.devices.model import Device
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.schedules.device_plan import runs_on_device
from domain.schedules.device_plan_sync import DevicePlanSyncService
from domain.schedules.due_edges import decide_due_edge
from domain.schedules.edge_commands import automation_command, command_result
from domain.schedules.model import DecidedScheduleEdge, EdgeOutcome, OfflineScheduleEdge, Schedule
from domain.schedules.ports import RecurrenceCalculator, ScheduleTx
from domain.schedules.schedule_run_events import (
    DueSlotWithDecision,
    ScheduleEdgeResult,
    describe_misfire_policy,
    edge_event,
    quarantined_event,
    superseded_event,
)
from domain.schedules.schedule_state_machine import apply_edge_outcome

SHORT_BATCH, LONG_BATCH = 80, 320
"""Slots per transaction. More slots share round trips and one commit. But where there is a single writer, all other changes wait
for a batch: there it is short."""


class SlotDecisionFailedError(Exception):
    """One slot could not be decided; its transaction was rolled back."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule.schedule_id)
        self.schedule = schedule


@service
class ScheduleFiringService:
    uow: UnitOfWork[ScheduleTx]
    clock: Clock
    recurrence: RecurrenceCalculator
    commands: CommandSubmissionService
    plans: DevicePlanSyncService
    batch_size: int = SHORT_BATCH

    async def next_due_ts(self) -> int | None:
        async with self.uow.read() as tx:
            return await tx.schedules.next_due_ts()

    async def fire_due(self, now_ms: int, *, lateness_allowance_s: int = 0, limit: int | None = None) -> int:
        """Decide a batch of due slots and return how many. Call again until 0. `lateness_allowance_s`: lateness that the slots
        did not cause. Raises Unavailable when the database does not answer, SlotDecisionFailedError for a slot to quarantine."""
        due: Sequence[Schedule] = ()
        try:
            async with self.uow.write(caller=None, background=True) as tx:
                due = await tx.schedules.list_due(now_ms // SECOND_MS, limit or self.batch_size)
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
            await tx.emit(quarantined_event(schedule, edge, outcome, now_ms))

    async def _decide(self, tx: ScheduleTx, due: Sequence[Schedule], now_ms: int, lateness_allowance_s: int) -> None:
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
        edges = [edge for slot, result in decided for edge in _edge_records(slot, result.outcome, self.clock.now_ms())]
        await tx.schedules.save_decisions(after, edges)
        left = [_offline_device_edge(slot) for slot, result in decided if result.outcome is EdgeOutcome.LEFT_TO_DEVICE]
        if left:
            await tx.schedules.add_left(left)
        for slot, result in decided:
            await _emit_edge_events(tx, slot, result, now_ms)
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
        self, tx: ScheduleTx, slots: Sequence[DueSlotWithDecision], now_ms: int
    ) -> Sequence[ScheduleEdgeResult]:
        """Queue the commands of the slots that run. Returns one result per slot."""
        first = [_decide_without_command(slot) or automation_command(slot, now_ms) for slot in slots]
        commands = [one for one in first if isinstance(one, AutomationCommand)]
        outcomes = iter(await self.commands.run_unattended(tx, commands, now_ms) if commands else ())
        return [
            one if isinstance(one, ScheduleEdgeResult) else command_result(slot, next(outcomes))
            for slot, one in zip(slots, first, strict=True)
        ]


def _decide_without_command(slot: DueSlotWithDecision) -> ScheduleEdgeResult | None:
    """The result of a slot that runs no command; None for the others."""
    schedule, device, decision = slot.schedule, slot.device, slot.decision
    if decision.is_missed:
        return ScheduleEdgeResult(
            EdgeOutcome.MISSED, f"it was due {decision.late_s} s ago, and {describe_misfire_policy(schedule)}"
        )
    if device is not None and schedule.created_by is not None and device.is_active and runs_on_device(device, schedule):
        return ScheduleEdgeResult(EdgeOutcome.LEFT_TO_DEVICE)
    return None


def _edge_records(slot: DueSlotWithDecision, outcome: EdgeOutcome, at_ms: int) -> Sequence[DecidedScheduleEdge]:
    """The decided edge, and the first edge that it supersedes."""
    schedule, due = slot.schedule, slot.decision.due
    decided = DecidedScheduleEdge(schedule.schedule_id, schedule.revision, due.edge, due.ts, at_ms, outcome)
    if slot.decision.superseded_count == 0 or schedule.next_edge is None or schedule.next_fire_ts is None:
        return [decided]
    first, first_ts = schedule.next_edge, schedule.next_fire_ts
    superseded = DecidedScheduleEdge(schedule.schedule_id, schedule.revision, first, first_ts, at_ms, EdgeOutcome.SUPERSEDED)
    return [decided, superseded]


async def _emit_edge_events(tx: ScheduleTx, slot: DueSlotWithDecision, result: ScheduleEdgeResult, now_ms: int) -> None:
    schedule = slot.schedule
    if slot.decision.superseded_count and schedule.next_edge is not None and schedule.next_fire_ts is not None:
        await tx.emit(superseded_event(slot, schedule.next_edge, schedule.next_fire_ts, now_ms))
    if result.outcome is not EdgeOutcome.LEFT_TO_DEVICE:  # announced when the device confirms it
        await tx.emit(edge_event(slot, result, now_ms))


def _offline_device_edge(slot: DueSlotWithDecision) -> OfflineScheduleEdge:
    schedule, device, decision = slot.schedule, slot.device, slot.decision
    assert device is not None  # noqa: S101 - only a device that was loaded can hold its plan
    next_ts = None if decision.next_edge is None else decision.next_edge.ts
    due = decision.due
    return OfflineScheduleEdge(
        schedule.schedule_id, schedule.device_id, schedule.revision, due.edge, due.ts, device.sched_rev, next_ts
    )
