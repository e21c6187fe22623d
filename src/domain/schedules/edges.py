"""The switch edges of a slot in order, which due edge runs, and what its outcome does to the schedule. Needs no I/O.

The edges of a slot have one total order: by second, and within a second by their order in the slot's first occurrence. Of
several due edges only the latest may run, so ON is never replayed once OFF is due. An edge that is too late for the slot's
misfire policy is missed: it does not run, but it is logged. While more is to come, an ON that ran makes the schedule ACTIVE and
an OFF that ran makes it PENDING again; an ended schedule never changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.kernel.dataclasses import fast_replace
from domain.kernel.errors import Conflict, DomainError, NotFound, ValidationFailed
from domain.schedules.model import MIN_MISFIRE_GRACE_S, EdgeOutcome, MisfirePolicy, Schedule, ScheduleStatus, SwitchEdge
from domain.schedules.ports import RecurrenceCalculator

LATE_AFTER_S = 2
"""An edge that runs later than this is reported as late."""
RAN_OUTCOMES = frozenset({EdgeOutcome.FIRED, EdgeOutcome.FIRED_LATE, EdgeOutcome.RAN_ON_DEVICE})
OPEN_STATUSES = (ScheduleStatus.PENDING, ScheduleStatus.ACTIVE)
STATUS_AFTER_RUN = {SwitchEdge.ON: ScheduleStatus.ACTIVE, SwitchEdge.OFF: ScheduleStatus.PENDING}
"""While more edges are to come; the last one completes the schedule, whether it ran or not."""
_MAX_DST_SHIFT_S = 2 * 3_600
"""The most by which a daylight saving time change lengthens a slot."""
_MAX_STEPS = 64
"""Superseded edges are counted one by one up to this; then the search jumps to the earliest edge that may still run."""


@dataclass(frozen=True, slots=True)
class ScheduleEdgeOccurrence:
    """One edge and its due second, Unix time."""

    ts: int
    edge: SwitchEdge


@dataclass(frozen=True, slots=True)
class DueScheduleEdgeDecision:
    """What a due slot does now: `due` runs, unless `is_missed`. `superseded_count` earlier edges are skipped (a lower bound);
    `next_edge` comes next, None after the last."""

    due: ScheduleEdgeOccurrence
    superseded_count: int
    late_s: int
    is_missed: bool
    next_edge: ScheduleEdgeOccurrence | None


def decide_due_edge(
    schedule: Schedule, now_ts: int, recurrence: RecurrenceCalculator, lateness_allowance_s: int = 0
) -> DueScheduleEdgeDecision:
    """What the due slot does at `now_ts`. `lateness_allowance_s`: lateness that the slot did not cause (a clock set forward, a
    long queue) and that does not count."""
    if schedule.next_fire_ts is None or schedule.next_edge is None:
        raise ValueError(f"schedule {schedule.schedule_id} has no edge to decide")
    allowed_s = max_lateness_s(schedule) + lateness_allowance_s
    latest, superseded, after = _latest_due_edge(schedule, now_ts, allowed_s, recurrence)
    late_s = max(0, now_ts - latest.ts)
    return DueScheduleEdgeDecision(latest, superseded, late_s, late_s > allowed_s, after)


def _latest_due_edge(
    schedule: Schedule, now_ts: int, allowed_s: int, recurrence: RecurrenceCalculator
) -> tuple[ScheduleEdgeOccurrence, int, ScheduleEdgeOccurrence | None]:
    """The latest due edge, how many edges it supersedes, and the edge after it."""
    assert schedule.next_fire_ts is not None  # noqa: S101 - checked by `decide_due_edge`
    assert schedule.next_edge is not None  # noqa: S101
    latest, superseded = ScheduleEdgeOccurrence(schedule.next_fire_ts, schedule.next_edge), 0
    after = next_edge_after(schedule, latest, recurrence)
    jump_ts = now_ts - allowed_s - 1
    while after is not None and after.ts <= now_ts:
        latest, superseded = after, superseded + 1
        if superseded == _MAX_STEPS and latest.ts < jump_ts:
            jumped = first_edge_after(schedule, jump_ts, recurrence)
            if jumped is None or jumped.ts > now_ts:
                return latest, superseded, jumped
            latest = jumped
        after = next_edge_after(schedule, latest, recurrence)
    return latest, superseded, after


def max_lateness_s(schedule: Schedule) -> int:
    return MIN_MISFIRE_GRACE_S if schedule.misfire is MisfirePolicy.SKIP else schedule.misfire_grace_s


def initial_edge(
    schedule: Schedule, now_ts: int, done_ts: int, recurrence: RecurrenceCalculator
) -> ScheduleEdgeOccurrence | None:
    """The first edge of a slot that is saved now; None when no edge is left.

    A slot saved between its two edges starts with the first one, late, if its misfire policy allows; otherwise it waits for the
    next occurrence. Edges up to the second `done_ts` have already run and are ignored.
    """
    upcoming = first_edge_after(schedule, max(now_ts - 1, done_ts), recurrence)
    if upcoming is None or _edge_rank(schedule, upcoming.edge) == 0:
        return upcoming
    begun_ts = upcoming.ts - abs(schedule.off_ts - schedule.on_ts) - _MAX_DST_SHIFT_S
    earliest_ts = max(done_ts, now_ts - max_lateness_s(schedule) - 1, begun_ts)
    late = first_edge_after(schedule, earliest_ts, recurrence)
    while late is not None and late.ts < upcoming.ts:
        following = next_edge_after(schedule, late, recurrence)
        if following == upcoming:
            return late
        late = following
    return upcoming


def first_edge_after(schedule: Schedule, after_ts: int, recurrence: RecurrenceCalculator) -> ScheduleEdgeOccurrence | None:
    """The earliest edge strictly after the second `after_ts`."""
    last_edge = SwitchEdge.OFF if _edge_rank(schedule, SwitchEdge.OFF) == 1 else SwitchEdge.ON
    return next_edge_after(schedule, ScheduleEdgeOccurrence(after_ts, last_edge), recurrence)


def next_edge_after(
    schedule: Schedule, after: ScheduleEdgeOccurrence, recurrence: RecurrenceCalculator
) -> ScheduleEdgeOccurrence | None:
    """The edge after `after` in the slot's order."""
    rank = _edge_rank(schedule, after.edge)
    candidates = []
    for edge in SwitchEdge:
        floor_ts = after.ts - 1 if _edge_rank(schedule, edge) > rank else after.ts
        at_ts = next_occurrence_ts(schedule, edge, floor_ts, recurrence)
        if at_ts is not None:
            candidates.append(ScheduleEdgeOccurrence(at_ts, edge))
    return min(candidates, key=lambda candidate: (candidate.ts, _edge_rank(schedule, candidate.edge)), default=None)


def next_occurrence_ts(schedule: Schedule, edge: SwitchEdge, after_ts: int, recurrence: RecurrenceCalculator) -> int | None:
    """The first time of this edge strictly after `after_ts`."""
    own_ts = schedule.on_ts if edge is SwitchEdge.ON else schedule.off_ts
    if schedule.rrule is None:
        return own_ts if own_ts > after_ts else None
    paired_ts = None if edge is SwitchEdge.ON else schedule.off_ts
    return recurrence.next_occurrence(schedule.rrule, schedule.timezone, schedule.on_ts, after_ts, paired_ts=paired_ts)


def _edge_rank(schedule: Schedule, edge: SwitchEdge) -> int:
    """0 for the first edge of an occurrence, 1 for the second."""
    first = SwitchEdge.ON if schedule.on_ts < schedule.off_ts else SwitchEdge.OFF
    return 0 if edge is first else 1


def apply_edge_outcome(
    schedule: Schedule, edge: SwitchEdge, outcome: EdgeOutcome, following: ScheduleEdgeOccurrence | None, now_ms: int
) -> Schedule:
    """The schedule after one of its edges was decided. Raises Conflict `SCHEDULE_STATE` for one that has ended."""
    _check_open(schedule)
    status, last_fired_ms = schedule.status, schedule.last_fired_ms
    if outcome in RAN_OUTCOMES:
        status, last_fired_ms = STATUS_AFTER_RUN[edge], now_ms
    if following is None:
        return _with_progress(schedule, ScheduleStatus.COMPLETED, None, None, last_fired_ms, outcome, now_ms)
    return _with_progress(schedule, status, following.ts, following.edge, last_fired_ms, outcome, now_ms)


def apply_resolved_outcome(schedule: Schedule, edge: SwitchEdge, outcome: EdgeOutcome, due_ms: int, now_ms: int) -> Schedule:
    """The schedule after an edge that was left to the device was resolved. A later edge that was decided meanwhile keeps its
    word."""
    if schedule.last_outcome is not EdgeOutcome.LEFT_TO_DEVICE:
        return schedule
    status, last_fired_ms = schedule.status, schedule.last_fired_ms
    if outcome in RAN_OUTCOMES:
        last_fired_ms = due_ms if outcome is EdgeOutcome.RAN_ON_DEVICE else now_ms
        status = STATUS_AFTER_RUN[edge] if status in OPEN_STATUSES else status
    return replace(schedule, status=status, last_fired_ms=last_fired_ms, last_outcome=outcome, updated_ms=now_ms)


def cancel(schedule: Schedule, now_ms: int) -> Schedule:
    """Raises Conflict `SCHEDULE_STATE` for a schedule that has ended."""
    _check_open(schedule)
    return replace(schedule, status=ScheduleStatus.CANCELLED, next_fire_ts=None, next_edge=None, updated_ms=now_ms)


def _check_open(schedule: Schedule) -> None:
    """Raises Conflict `SCHEDULE_STATE` for a schedule that has ended."""
    if schedule.status not in OPEN_STATUSES:
        raise Conflict(f"A {schedule.status} schedule cannot change. Save a new one in its slot.", code="SCHEDULE_STATE")


_with_progress = fast_replace(Schedule, "status", "next_fire_ts", "next_edge", "last_fired_ms", "last_outcome", "updated_ms")


def fired_outcome(late_s: int) -> EdgeOutcome:
    return EdgeOutcome.FIRED if late_s < LATE_AFTER_S else EdgeOutcome.FIRED_LATE


def outcome_for_error(error: DomainError) -> EdgeOutcome:
    """The outcome of an edge whose command was denied."""
    if error.code == "COMMAND_NEEDS_APPROVAL":
        return EdgeOutcome.SKIPPED_APPROVAL
    if error.code == "DEVICE_DISABLED" or isinstance(error, Conflict | NotFound):
        return EdgeOutcome.SKIPPED_DEVICE
    return EdgeOutcome.SKIPPED_COMMAND if isinstance(error, ValidationFailed) else EdgeOutcome.SKIPPED_GRANT
