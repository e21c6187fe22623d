"""What the log says of an edge: that it ran, or why not. Nothing that was due goes by in silence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.commands.model import Execution
from domain.devices.model import Device
from domain.events.model import SCHEDULE_FIRED
from domain.kernel.clock import SECOND_MS
from domain.kernel.domain_events import DomainEvent, EventKind, Json
from domain.schedules import policy
from domain.schedules.due_edges import DueEdgeDecision, max_lateness_s
from domain.schedules.model import EdgeOutcome, MisfirePolicy, Schedule, SlotCommand, SwitchEdge

SCHEDULE_SKIPPED: Final = "schedule_skipped"


@dataclass(frozen=True, slots=True)
class EdgeResult:
    """What became of an edge; `why` is empty when it ran."""

    outcome: EdgeOutcome
    reason: str = ""
    execution: Execution | None = None


@dataclass(frozen=True, slots=True)
class DueSlot:
    """A due slot: its device, None when that is gone, and what its edges come to now."""

    schedule: Schedule
    device: Device | None
    decision: DueEdgeDecision


def edge_event(case: DueSlot, decision: EdgeResult, now_ms: int) -> DomainEvent:
    """The fact that an edge ran, or that it did not."""
    schedule, this = case.schedule, case.decision
    more: dict[str, Json] = {"lateSeconds": this.late_s}
    if decision.outcome in policy.RAN_OUTCOMES:
        by = " by the device itself" if decision.outcome is EdgeOutcome.RAN_ON_DEVICE else ""
        text = f"Slot {schedule.slot} switched {this.due.edge}{by}: {command_for_edge(schedule, this.due.edge).command}"
        if decision.execution is not None:
            more["executionId"] = decision.execution.execution_id
        return _slot_event(case, SCHEDULE_FIRED, text, now_ms, _event_data(schedule, this.due.edge, more))
    more["reason"] = decision.outcome.value
    text = f"Slot {schedule.slot} did not switch {this.due.edge}: {decision.reason}"
    return _slot_event(case, SCHEDULE_SKIPPED, text, now_ms, _event_data(schedule, this.due.edge, more))


def superseded_event(case: DueSlot, edge: SwitchEdge, due_ts: int, now_ms: int) -> DomainEvent:
    """The fact that edges were passed over for a later one: the first is named, the others counted."""
    schedule, this = case.schedule, case.decision
    late_s = now_ms // SECOND_MS - due_ts
    more: dict[str, Json] = {"reason": EdgeOutcome.SUPERSEDED.value, "lateSeconds": late_s, "edges": this.superseded_count}
    text = f"Slot {schedule.slot}: {this.superseded_count} missed edge(s) passed over, {this.due.edge} is due"
    return _slot_event(case, SCHEDULE_SKIPPED, text, now_ms, _event_data(schedule, edge, more))


def quarantined_event(schedule: Schedule, edge: SwitchEdge, outcome: EdgeOutcome, now_ms: int) -> DomainEvent:
    """The fact that a fault of ours cost a slot its edge."""
    data = _event_data(schedule, edge, {"reason": outcome.value})
    text = f"Slot {schedule.slot} was passed over: a fault of the service; its log says more."
    return _schedule_event(schedule, SCHEDULE_SKIPPED, text, now_ms, data, None)


def describe_misfire_policy(schedule: Schedule) -> str:
    if schedule.misfire is MisfirePolicy.SKIP:
        return "this slot skips what is missed."
    return f"this slot makes up for at most {max_lateness_s(schedule)} s."


def command_for_edge(schedule: Schedule, edge: SwitchEdge) -> SlotCommand:
    return schedule.on_command if edge is SwitchEdge.ON else schedule.off_command


def _event_data(schedule: Schedule, edge: SwitchEdge, more: dict[str, Json]) -> dict[str, Json]:
    return {
        "scheduleId": schedule.schedule_id,
        "slot": schedule.slot,
        "edge": edge.value,
        "command": command_for_edge(schedule, edge).command,
        **more,
    }


def _slot_event(case: DueSlot, kind: EventKind, text: str, now_ms: int, data: dict[str, Json]) -> DomainEvent:
    return _schedule_event(case.schedule, kind, text, now_ms, data, case.device)


def _schedule_event(
    schedule: Schedule, kind: EventKind, text: str, now_ms: int, data: dict[str, Json], device: Device | None
) -> DomainEvent:
    return DomainEvent(
        account_id=schedule.account_id,
        kind=kind,
        description=text,
        at_ms=now_ms,
        source=f"schedule:{schedule.schedule_id}",
        device_id=schedule.device_id,
        data=data,
        device_name=None if device is None else device.name,
    )
