"""What the log says of an edge: that it ran, or why not. Nothing that was due goes by in silence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.commands.model import Execution
from domain.devices.model import Device
from domain.events.model import SCHEDULE_FIRED
from domain.kernel.clock import SECOND_MS
from domain.kernel.facts import EventKind, Fact, Json
from domain.schedules import policy
from domain.schedules.edges import Turn, allowed_late_s
from domain.schedules.model import Edge, Misfire, Outcome, Schedule, SlotCommand

SKIPPED: Final = "schedule_skipped"


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of an edge; `why` is empty when it ran."""

    outcome: Outcome
    why: str = ""
    execution: Execution | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A due slot: its device, None when that is gone, and what its edges come to now."""

    schedule: Schedule
    device: Device | None
    this: Turn


def told(case: Case, decision: Decision, now_ms: int) -> Fact:
    """The fact that an edge ran, or that it did not."""
    schedule, this = case.schedule, case.this
    more: dict[str, Json] = {"lateSeconds": this.late_s}
    if decision.outcome in policy.RAN:
        by = " by the device itself" if decision.outcome is Outcome.RAN_ON_DEVICE else ""
        text = f"Slot {schedule.slot} switched {this.due.edge}{by}: {order_of(schedule, this.due.edge).command}"
        if decision.execution is not None:
            more["executionId"] = decision.execution.execution_id
        return _fact(case, SCHEDULE_FIRED, text, now_ms, _data(schedule, this.due.edge, more))
    more["reason"] = decision.outcome.value
    text = f"Slot {schedule.slot} did not switch {this.due.edge}: {decision.why}"
    return _fact(case, SKIPPED, text, now_ms, _data(schedule, this.due.edge, more))


def told_superseded(case: Case, edge: Edge, due_ts: int, now_ms: int) -> Fact:
    """The fact that edges were passed over for a later one: the first is named, the others counted."""
    schedule, this = case.schedule, case.this
    late_s = now_ms // SECOND_MS - due_ts
    more: dict[str, Json] = {"reason": Outcome.SUPERSEDED.value, "lateSeconds": late_s, "edges": this.superseded}
    text = f"Slot {schedule.slot}: {this.superseded} missed edge(s) passed over, {this.due.edge} is due"
    return _fact(case, SKIPPED, text, now_ms, _data(schedule, edge, more))


def told_set_aside(schedule: Schedule, edge: Edge, outcome: Outcome, now_ms: int) -> Fact:
    """The fact that a fault of ours cost a slot its edge."""
    data = _data(schedule, edge, {"reason": outcome.value})
    text = f"Slot {schedule.slot} was passed over: a fault of the service; its log says more."
    return _fact_of(schedule, SKIPPED, text, now_ms, data, None)


def tolerance(schedule: Schedule) -> str:
    if schedule.misfire is Misfire.SKIP:
        return "this slot skips what is missed."
    return f"this slot makes up for at most {allowed_late_s(schedule)} s."


def order_of(schedule: Schedule, edge: Edge) -> SlotCommand:
    return schedule.on_command if edge is Edge.ON else schedule.off_command


def _data(schedule: Schedule, edge: Edge, more: dict[str, Json]) -> dict[str, Json]:
    return {
        "scheduleId": schedule.schedule_id,
        "slot": schedule.slot,
        "edge": edge.value,
        "command": order_of(schedule, edge).command,
        **more,
    }


def _fact(case: Case, kind: EventKind, text: str, now_ms: int, data: dict[str, Json]) -> Fact:
    return _fact_of(case.schedule, kind, text, now_ms, data, case.device)


def _fact_of(
    schedule: Schedule, kind: EventKind, text: str, now_ms: int, data: dict[str, Json], device: Device | None
) -> Fact:
    return Fact(
        account_id=schedule.account_id,
        kind=kind,
        description=text,
        at_ms=now_ms,
        source=f"schedule:{schedule.schedule_id}",
        device_id=schedule.device_id,
        data=data,
        device_name=None if device is None else device.name,
    )
