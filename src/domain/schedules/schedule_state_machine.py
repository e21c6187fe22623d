"""The states of a schedule, and what the outcome of an edge does to it. Needs no I/O."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from domain.kernel.dataclasses import fast_replace
from domain.kernel.errors import Conflict, DomainError, NotFound, ValidationFailed
from domain.schedules.due_edges import LATE_AFTER_S, ScheduleEdgeOccurrence
from domain.schedules.model import EdgeOutcome, Schedule, ScheduleStatus, SwitchEdge


class ScheduleTransitionTrigger(StrEnum):
    ON_RAN = "on ran, more to come"
    OFF_RAN = "off ran, more to come"
    PASSED = "an edge did not run, more to come"
    LAST = "the last edge was decided"
    CANCEL = "cancelled or replaced"


_PENDING, _ACTIVE, _COMPLETED, _CANCELLED = (
    ScheduleStatus.PENDING,
    ScheduleStatus.ACTIVE,
    ScheduleStatus.COMPLETED,
    ScheduleStatus.CANCELLED,
)
TRANSITIONS: dict[tuple[ScheduleStatus, ScheduleTransitionTrigger], ScheduleStatus] = {
    (_PENDING, ScheduleTransitionTrigger.ON_RAN): _ACTIVE,
    (_PENDING, ScheduleTransitionTrigger.OFF_RAN): _PENDING,
    (_PENDING, ScheduleTransitionTrigger.PASSED): _PENDING,
    (_PENDING, ScheduleTransitionTrigger.LAST): _COMPLETED,
    (_PENDING, ScheduleTransitionTrigger.CANCEL): _CANCELLED,
    (_ACTIVE, ScheduleTransitionTrigger.ON_RAN): _ACTIVE,
    (_ACTIVE, ScheduleTransitionTrigger.OFF_RAN): _PENDING,
    (_ACTIVE, ScheduleTransitionTrigger.PASSED): _ACTIVE,
    (_ACTIVE, ScheduleTransitionTrigger.LAST): _COMPLETED,
    (_ACTIVE, ScheduleTransitionTrigger.CANCEL): _CANCELLED,
}


def next_status(status: ScheduleStatus, trigger: ScheduleTransitionTrigger) -> ScheduleStatus:
    """Raises Conflict `SCHEDULE_STATE` when the table has no such transition."""
    following = TRANSITIONS.get((status, trigger))
    if following is None:
        raise Conflict(f"A {status} schedule cannot change. Save a new one in its slot.", code="SCHEDULE_STATE")
    return following


_RAN_TRIGGERS = {SwitchEdge.ON: ScheduleTransitionTrigger.ON_RAN, SwitchEdge.OFF: ScheduleTransitionTrigger.OFF_RAN}


def trigger_for(edge: SwitchEdge, outcome: EdgeOutcome, following: ScheduleEdgeOccurrence | None) -> ScheduleTransitionTrigger:
    if following is None:
        return ScheduleTransitionTrigger.LAST
    return _RAN_TRIGGERS[edge] if outcome in RAN_OUTCOMES else ScheduleTransitionTrigger.PASSED


RAN_OUTCOMES = frozenset({EdgeOutcome.FIRED, EdgeOutcome.FIRED_LATE, EdgeOutcome.RAN_ON_DEVICE})


def fired_outcome(late_s: int) -> EdgeOutcome:
    return EdgeOutcome.FIRED if late_s < LATE_AFTER_S else EdgeOutcome.FIRED_LATE


def outcome_for_error(error: DomainError) -> EdgeOutcome:
    """The outcome of an edge whose command was denied."""
    if error.code == "COMMAND_NEEDS_APPROVAL":
        return EdgeOutcome.SKIPPED_APPROVAL
    if error.code == "DEVICE_DISABLED" or isinstance(error, Conflict | NotFound):
        return EdgeOutcome.SKIPPED_DEVICE
    return EdgeOutcome.SKIPPED_COMMAND if isinstance(error, ValidationFailed) else EdgeOutcome.SKIPPED_GRANT


_with_progress = fast_replace(Schedule, "status", "next_fire_ts", "next_edge", "last_fired_ms", "last_outcome", "updated_ms")


def apply_edge_outcome(
    schedule: Schedule, edge: SwitchEdge, outcome: EdgeOutcome, following: ScheduleEdgeOccurrence | None, now_ms: int
) -> Schedule:
    """The schedule after one of its edges was decided."""
    return _with_progress(
        schedule,
        next_status(schedule.status, trigger_for(edge, outcome, following)),
        following.ts if following else None,
        following.edge if following else None,
        now_ms if outcome in RAN_OUTCOMES else schedule.last_fired_ms,
        outcome,
        now_ms,
    )


def apply_resolved_outcome(schedule: Schedule, edge: SwitchEdge, outcome: EdgeOutcome, due_ms: int, now_ms: int) -> Schedule:
    """The schedule after an edge that was left to the device was resolved. A later edge that was decided meanwhile keeps its
    word."""
    if schedule.last_outcome is not EdgeOutcome.LEFT_TO_DEVICE:
        return schedule
    status, last_fired_ms = schedule.status, schedule.last_fired_ms
    if outcome in RAN_OUTCOMES:
        last_fired_ms = due_ms if outcome is EdgeOutcome.RAN_ON_DEVICE else now_ms
        status = TRANSITIONS.get((status, _RAN_TRIGGERS[edge]), status)
    return replace(schedule, status=status, last_fired_ms=last_fired_ms, last_outcome=outcome, updated_ms=now_ms)


def cancel(schedule: Schedule, now_ms: int) -> Schedule:
    return replace(
        schedule,
        status=next_status(schedule.status, ScheduleTransitionTrigger.CANCEL),
        next_fire_ts=None,
        next_edge=None,
        updated_ms=now_ms,
    )
