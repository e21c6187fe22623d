"""Decisions about slots that need no I/O: what a slot must satisfy, its lifecycle, and what a refusal at its time is called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from domain.kernel.errors import Conflict, DomainError, FieldFault, Invalid, NotFound
from domain.schedules.edges import LATE_S, Due, opening
from domain.schedules.model import SLOTS, Edge, Outcome, Schedule, ScheduleStatus
from domain.schedules.ports import Recurrence

MAX_LABEL = 64
MAX_GRACE_S = 24 * 3_600
MILLISECONDS_FROM = 10**11
"""As seconds this lies in the year 5138, as milliseconds in 1973: whoever writes it means milliseconds."""


class Step(StrEnum):
    """What moves a slot along."""

    ON_RAN = "on ran, more to come"
    OFF_RAN = "off ran, more to come"
    PASSED = "an edge did not run, more to come"
    LAST = "the last edge was decided"
    CANCEL = "cancelled or replaced"


_P, _A, _C, _X = (
    ScheduleStatus.PENDING,
    ScheduleStatus.ACTIVE,
    ScheduleStatus.COMPLETED,
    ScheduleStatus.CANCELLED,
)
TRANSITIONS: dict[tuple[ScheduleStatus, Step], ScheduleStatus] = {
    (_P, Step.ON_RAN): _A,
    (_P, Step.OFF_RAN): _P,
    (_P, Step.PASSED): _P,
    (_P, Step.LAST): _C,
    (_P, Step.CANCEL): _X,
    (_A, Step.ON_RAN): _A,
    (_A, Step.OFF_RAN): _P,
    (_A, Step.PASSED): _A,
    (_A, Step.LAST): _C,
    (_A, Step.CANCEL): _X,
}


def after(status: ScheduleStatus, step: Step) -> ScheduleStatus:
    """Raises Conflict `SCHEDULE_STATE` when the table has no such transition."""
    following = TRANSITIONS.get((status, step))
    if following is None:
        raise Conflict(f"A schedule that is {status} is over. Put a new one in its slot.", code="SCHEDULE_STATE")
    return following


def step_of(edge: Edge, outcome: Outcome, following: Due | None) -> Step:
    if following is None:
        return Step.LAST
    if outcome not in RAN:
        return Step.PASSED
    return Step.ON_RAN if edge is Edge.ON else Step.OFF_RAN


RAN = frozenset({Outcome.FIRED, Outcome.FIRED_LATE, Outcome.RAN_ON_DEVICE})


def outcome_on_time(late_s: int) -> Outcome:
    return Outcome.FIRED if late_s < LATE_S else Outcome.FIRED_LATE


def outcome_of(error: DomainError) -> Outcome:
    """What a refused command makes of its edge."""
    if error.code == "COMMAND_NEEDS_APPROVAL":
        return Outcome.SKIPPED_APPROVAL
    if error.code == "DEVICE_DISABLED" or isinstance(error, Conflict | NotFound):
        return Outcome.SKIPPED_DEVICE
    return Outcome.SKIPPED_COMMAND if isinstance(error, Invalid) else Outcome.SKIPPED_GRANT


def check(schedule: Schedule, recurrence: Recurrence) -> None:
    """Raises Invalid naming each field at fault."""
    faults = list(_faults(schedule))
    if not recurrence.knows(schedule.timezone):
        message = f"{schedule.timezone[:64]!r} is not an IANA time zone such as Europe/Berlin or UTC."
        faults.append(FieldFault("timezone", message))
    elif schedule.rrule is not None and not faults:
        fault = recurrence.problem(schedule.rrule, schedule.timezone, schedule.on_ts, schedule.off_ts)
        faults += [fault] if fault else []
    if faults:
        raise Invalid(f"The schedule is not valid: {faults[0].field}: {faults[0].message}", details=faults)


def _faults(schedule: Schedule) -> Iterator[FieldFault]:
    yield from slot_faults(schedule.slot)
    for field, ts in (("onTs", schedule.on_ts), ("offTs", schedule.off_ts)):
        if ts >= MILLISECONDS_FROM:
            yield FieldFault(field, f"is in Unix seconds; {ts} looks like milliseconds. Divide it by 1000.")
        elif ts <= 0:
            yield FieldFault(field, "is in Unix seconds and must be after 1970.")
    if schedule.on_ts == schedule.off_ts:
        yield FieldFault("offTs", "must differ from onTs; a slot cannot switch on and off in the same second.")
    if len(schedule.label) > MAX_LABEL:
        yield FieldFault("label", f"takes at most {MAX_LABEL} characters.")
    if not 0 <= schedule.misfire_grace_s <= MAX_GRACE_S:
        yield FieldFault("misfireGraceSeconds", f"is 0 to {MAX_GRACE_S} seconds.")


def slot_faults(slot: int) -> Iterator[FieldFault]:
    if not 0 <= slot < SLOTS:
        yield FieldFault("slot", f"is 0 to {SLOTS - 1}: a device has {SLOTS} slots.")


def saved(schedule: Schedule, before: Schedule | None, now_ts: int, recurrence: Recurrence) -> Schedule:
    """The slot as it is stored: with its first edge, and its revision counted up if what it does has changed.

    `before` is what the slot held, the same schedule or one that is replaced. Raises Invalid when nothing is left to happen.
    """
    same = before is not None and before.schedule_id == schedule.schedule_id
    if before is not None and same and _does(before) == _does(schedule):
        return schedule
    done_ts = 0 if before is None or before.last_fired_ms is None else before.last_fired_ms // 1000
    first = opening(schedule, now_ts, done_ts, recurrence)
    if first is None:
        details = [FieldFault(field, "lies in the past.") for field in ("onTs", "offTs")]
        raise Invalid("Both times of the slot lie in the past; give one that is still to come.", details=details)
    running = same and schedule.status is ScheduleStatus.ACTIVE and first.edge is Edge.OFF
    return replace(
        schedule,
        status=ScheduleStatus.ACTIVE if running else ScheduleStatus.PENDING,
        revision=schedule.revision + 1 if same else 1,
        next_fire_ts=first.ts if schedule.enabled else None,
        next_edge=first.edge if schedule.enabled else None,
    )


def _does(schedule: Schedule) -> tuple[object, ...]:
    return (
        schedule.on_ts,
        schedule.off_ts,
        schedule.enabled,
        schedule.on_command,
        schedule.off_command,
        schedule.rrule,
        schedule.timezone,
    )


def decided(schedule: Schedule, edge: Edge, outcome: Outcome, following: Due | None, now_ms: int) -> Schedule:
    """The slot after one of its edges was decided."""
    return schedule.at(
        after(schedule.status, step_of(edge, outcome, following)),
        following.ts if following else None,
        following.edge if following else None,
        now_ms if outcome in RAN else schedule.last_fired_ms,
        outcome,
        now_ms,
    )


def cancelled(schedule: Schedule, now_ms: int) -> Schedule:
    return replace(
        schedule, status=after(schedule.status, Step.CANCEL), next_fire_ts=None, next_edge=None, updated_ms=now_ms
    )
