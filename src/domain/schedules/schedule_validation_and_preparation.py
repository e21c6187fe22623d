"""Validates what is saved in a slot, and prepares it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from domain.kernel.checks import is_portable_timezone
from domain.kernel.errors import FieldError, ValidationFailed
from domain.schedules.due_edges import initial_edge
from domain.schedules.model import MIN_MISFIRE_GRACE_S, SLOTS_PER_DEVICE, Schedule, ScheduleStatus, SwitchEdge
from domain.schedules.ports import RecurrenceCalculator

MAX_LABEL_LENGTH = 64
MAX_MISFIRE_GRACE_S = 24 * 3_600
MILLISECONDS_THRESHOLD = 10**11
"""As seconds this is the year 5138, as milliseconds 1973: a larger value is in milliseconds."""


def check_schedule(schedule: Schedule, recurrence: RecurrenceCalculator) -> None:
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


def prepare_for_save(schedule: Schedule, before: Schedule | None, now_ts: int, recurrence: RecurrenceCalculator) -> Schedule:
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
