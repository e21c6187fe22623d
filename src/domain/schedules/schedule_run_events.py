"""Domain events of schedule edges: every due edge emits one, whether it ran or why it did not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.commands.model import Execution
from domain.devices.model import Device
from domain.events.model import SCHEDULE_FIRED
from domain.kernel.clock import SECOND_MS
from domain.kernel.domain_event import DomainEvent, EventKind, Json
from domain.schedules.due_edges import DueScheduleEdgeDecision, max_lateness_s
from domain.schedules.model import EdgeOutcome, MisfirePolicy, Schedule, ScheduledCommand, SwitchEdge
from domain.schedules.schedule_state_machine import RAN_OUTCOMES

SCHEDULE_SKIPPED: Final = "schedule_skipped"


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


def edge_event(slot: DueSlotWithDecision, result: ScheduleEdgeResult, now_ms: int) -> DomainEvent:
    schedule, decision = slot.schedule, slot.decision
    extra: dict[str, Json] = {"lateSeconds": decision.late_s}
    edge = decision.due.edge
    if result.outcome in RAN_OUTCOMES:
        command = command_for_edge(schedule, edge).command
        text = f"Slot {schedule.slot} switched {edge}: {command}"
        if result.outcome is EdgeOutcome.RAN_ON_DEVICE:
            text = f"Slot {schedule.slot} switched {edge} by the device: {command}"
        if result.execution is not None:
            extra["executionId"] = result.execution.execution_id
        return _schedule_event(schedule, SCHEDULE_FIRED, text, now_ms, edge, extra, slot.device)
    extra["reason"] = result.outcome.value
    text = f"Slot {schedule.slot} did not switch {edge}: {result.reason}"
    return _schedule_event(schedule, SCHEDULE_SKIPPED, text, now_ms, edge, extra, slot.device)


def superseded_event(slot: DueSlotWithDecision, edge: SwitchEdge, due_ts: int, now_ms: int) -> DomainEvent:
    """The event of edges that a later one superseded: it names the first and gives their number."""
    schedule, decision = slot.schedule, slot.decision
    late_s = now_ms // SECOND_MS - due_ts
    extra: dict[str, Json] = {"reason": EdgeOutcome.SUPERSEDED.value, "lateSeconds": late_s, "edges": decision.superseded_count}
    text = f"Slot {schedule.slot}: {decision.superseded_count} missed edge(s) skipped because {decision.due.edge} is due"
    return _schedule_event(schedule, SCHEDULE_SKIPPED, text, now_ms, edge, extra, slot.device)


def quarantined_event(schedule: Schedule, edge: SwitchEdge, outcome: EdgeOutcome, now_ms: int) -> DomainEvent:
    """The event of an edge that an internal error has skipped."""
    text = f"Slot {schedule.slot} was skipped because of an internal error. See the service log."
    return _schedule_event(schedule, SCHEDULE_SKIPPED, text, now_ms, edge, {"reason": outcome.value}, None)


def describe_misfire_policy(schedule: Schedule) -> str:
    if schedule.misfire is MisfirePolicy.SKIP:
        return "this slot skips missed edges."
    return f"this slot runs at most {max_lateness_s(schedule)} s late."


def command_for_edge(schedule: Schedule, edge: SwitchEdge) -> ScheduledCommand:
    return schedule.on_command if edge is SwitchEdge.ON else schedule.off_command


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
            "command": command_for_edge(schedule, edge).command,
            **extra,
        },
        device_name=None if device is None else device.name,
    )
