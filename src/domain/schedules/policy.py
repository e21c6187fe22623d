"""Decisions about slots that need no I/O: validation, lifecycle, and the outcome of a denied command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from domain.kernel.errors import Conflict, DomainError, FieldError, NotFound, ValidationFailed
from domain.kernel.fast_frozen_dataclass import fast_replace
from domain.kernel.timezone_names import is_portable_timezone
from domain.schedules.due_edges import LATE_AFTER_S, ScheduleEdgeOccurrence, initial_edge
from domain.schedules.model import (
    MIN_MISFIRE_GRACE_S,
    SLOTS_PER_DEVICE,
    EdgeOutcome,
    Schedule,
    ScheduleStatus,
    SwitchEdge,
)
from domain.schedules.ports import Recurrence

MAX_LABEL_LENGTH = 64
MAX_MISFIRE_GRACE_S = 24 * 3_600
MILLISECONDS_THRESHOLD = 10**11
"""As seconds this is the year 5138, as milliseconds 1973: a larger value is in milliseconds."""


class ScheduleTransitionCause(StrEnum):
    """The cause of a status transition."""

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
TRANSITIONS: dict[tuple[ScheduleStatus, ScheduleTransitionCause], ScheduleStatus] = {
    (_PENDING, ScheduleTransitionCause.ON_RAN): _ACTIVE,
    (_PENDING, ScheduleTransitionCause.OFF_RAN): _PENDING,
    (_PENDING, ScheduleTransitionCause.PASSED): _PENDING,
    (_PENDING, ScheduleTransitionCause.LAST): _COMPLETED,
    (_PENDING, ScheduleTransitionCause.CANCEL): _CANCELLED,
    (_ACTIVE, ScheduleTransitionCause.ON_RAN): _ACTIVE,
    (_ACTIVE, ScheduleTransitionCause.OFF_RAN): _PENDING,
    (_ACTIVE, ScheduleTransitionCause.PASSED): _ACTIVE,
    (_ACTIVE, ScheduleTransitionCause.LAST): _COMPLETED,
    (_ACTIVE, ScheduleTransitionCause.CANCEL): _CANCELLED,
}


def next_status(status: ScheduleStatus, trigger: ScheduleTransitionCause) -> ScheduleStatus:
    """Raises Conflict `SCHEDULE_STATE` when the table has no such transition."""
    following = TRANSITIONS.get((status, trigger))
    if following is None:
        raise Conflict(f"A {status} schedule cannot change. Save a new one in its slot.", code="SCHEDULE_STATE")
    return following


_LEFT_TRIGGERS = {SwitchEdge.ON: ScheduleTransitionCause.ON_RAN, SwitchEdge.OFF: ScheduleTransitionCause.OFF_RAN}


def trigger_for(edge: SwitchEdge, outcome: EdgeOutcome, following: ScheduleEdgeOccurrence | None) -> ScheduleTransitionCause:
    if following is None:
        return ScheduleTransitionCause.LAST
    if outcome not in RAN_OUTCOMES:
        return ScheduleTransitionCause.PASSED
    return ScheduleTransitionCause.ON_RAN if edge is SwitchEdge.ON else ScheduleTransitionCause.OFF_RAN


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


def check_schedule(schedule: Schedule, recurrence: Recurrence) -> None:
    """Raises ValidationFailed that names every invalid field."""
    faults = list(_field_errors(schedule))
    if not (is_portable_timezone(schedule.timezone) and recurrence.is_known_timezone(schedule.timezone)):
        message = f"{schedule.timezone[:64]!r} is not an IANA time zone such as Europe/Berlin or UTC."
        faults.append(FieldError("timezone", message))
    elif schedule.rrule is not None and not faults:
        fault = recurrence.find_error(schedule.rrule, schedule.timezone, schedule.on_ts, schedule.off_ts)
        faults += [fault] if fault else []
    if faults:
        raise ValidationFailed(f"The schedule is not valid: {faults[0].field}: {faults[0].message}", details=faults)


def _field_errors(schedule: Schedule) -> Iterator[FieldError]:
    yield from slot_errors(schedule.slot)
    for field, ts in (("onTs", schedule.on_ts), ("offTs", schedule.off_ts)):
        if ts >= MILLISECONDS_THRESHOLD:
            yield FieldError(field, f"must be in Unix seconds; {ts} looks like milliseconds. Divide it by 1000.")
        elif ts <= 0:
            yield FieldError(field, "must be in Unix seconds, after 1970.")
    if schedule.on_ts == schedule.off_ts:
        yield FieldError("offTs", "must differ from onTs; a slot cannot switch on and off in the same second.")
    if len(schedule.label) > MAX_LABEL_LENGTH:
        yield FieldError("label", f"must have at most {MAX_LABEL_LENGTH} characters.")
    if not MIN_MISFIRE_GRACE_S <= schedule.misfire_grace_s <= MAX_MISFIRE_GRACE_S:
        yield FieldError("misfireGraceSeconds", f"must be {MIN_MISFIRE_GRACE_S} to {MAX_MISFIRE_GRACE_S} seconds.")


def slot_errors(slot: int) -> Iterator[FieldError]:
    if not 0 <= slot < SLOTS_PER_DEVICE:
        yield FieldError("slot", f"must be 0 to {SLOTS_PER_DEVICE - 1}: a device has {SLOTS_PER_DEVICE} slots.")


def prepare_for_save(schedule: Schedule, before: Schedule | None, now_ts: int, recurrence: Recurrence) -> Schedule:
    """The schedule to store: with its first edge, and a higher revision if its times or commands changed.

    `before`: the schedule that the slot held, this one or the one it replaces. Raises ValidationFailed when no edge is left.
    """
    same = before is not None and before.schedule_id == schedule.schedule_id
    if before is not None and same and _behavior_key(before) == _behavior_key(schedule):
        return schedule
    done_ts = 0 if before is None or before.last_fired_ms is None else before.last_fired_ms // 1000
    first = initial_edge(schedule, now_ts, done_ts, recurrence)
    if first is None:
        details = [FieldError(field, "is in the past.") for field in ("onTs", "offTs")]
        raise ValidationFailed("Both times of the slot are in the past. Set at least one in the future.", details=details)
    running = same and schedule.status is ScheduleStatus.ACTIVE and first.edge is SwitchEdge.OFF
    return replace(
        schedule,
        status=ScheduleStatus.ACTIVE if running else ScheduleStatus.PENDING,
        revision=schedule.revision + 1 if same else 1,
        next_fire_ts=first.ts if schedule.enabled else None,
        next_edge=first.edge if schedule.enabled else None,
    )


def _behavior_key(schedule: Schedule) -> tuple[object, ...]:
    return (
        schedule.on_ts,
        schedule.off_ts,
        schedule.enabled,
        schedule.on_command,
        schedule.off_command,
        schedule.rrule,
        schedule.timezone,
    )


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
        if (status, _LEFT_TRIGGERS[edge]) in TRANSITIONS:
            status = TRANSITIONS[status, _LEFT_TRIGGERS[edge]]
    return replace(schedule, status=status, last_fired_ms=last_fired_ms, last_outcome=outcome, updated_ms=now_ms)


def cancel(schedule: Schedule, now_ms: int) -> Schedule:
    return replace(
        schedule,
        status=next_status(schedule.status, ScheduleTransitionCause.CANCEL),
        next_fire_ts=None,
        next_edge=None,
        updated_ms=now_ms,
    )
