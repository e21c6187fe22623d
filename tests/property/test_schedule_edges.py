"""Edge decisions against a model that lists every edge: however often the service was down, each edge is run, missed, or superseded
by a later one; exactly once, in order, and never ON once OFF is due."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import example, given, settings

from adapters.recurrence import DateutilRecurrence
from domain.schedules.edges import apply_edge_outcome, decide_due_edge, fired_outcome
from domain.schedules.model import (
    MIN_MISFIRE_GRACE_S,
    PLAIN_OFF,
    PLAIN_ON,
    EdgeOutcome,
    MisfirePolicy,
    Schedule,
    ScheduleStatus,
    SwitchEdge,
)

RECURRENCE = DateutilRecurrence()
BEGIN = 1_800_000_000  # a whole minute
STEPS = {"FREQ=MINUTELY;INTERVAL=7": 420, "FREQ=HOURLY": 3_600, "FREQ=DAILY": 86_400, None: 0}


@dataclass(frozen=True)
class Slot:
    rule: str | None
    count: int
    length: int
    misfire: MisfirePolicy
    grace: int

    @property
    def edges(self) -> list[tuple[int, SwitchEdge]]:
        """All of them, in order."""
        pairs = ((BEGIN + number * STEPS[self.rule], SwitchEdge.ON) for number in range(self.count))
        every = [one for on_ts, on in pairs for one in ((on_ts, on), (on_ts + self.length, SwitchEdge.OFF))]
        return sorted(every)

    @property
    def allowed_s(self) -> int:
        return MIN_MISFIRE_GRACE_S if self.misfire is MisfirePolicy.SKIP else self.grace

    def schedule(self) -> Schedule:
        first_ts, first = self.edges[0]
        return Schedule(
            "sched_1",
            "acc_1",
            "dev_1",
            1,
            0,
            BEGIN,
            BEGIN + self.length,
            "",
            True,
            ScheduleStatus.PENDING,
            PLAIN_ON,
            PLAIN_OFF,
            None if self.rule is None else f"{self.rule};COUNT={self.count}",
            "UTC",
            self.misfire,
            self.grace,
            1,
            first_ts,
            first,
            None,
            None,
            "mbr_1",
            0,
            0,
        )


@st.composite
def slots(draw: st.DrawFn) -> Slot:
    rule = draw(st.sampled_from(list(STEPS)))
    longest = (STEPS[rule] or 7_200) - 1
    length = draw(st.integers(1, longest)) * draw(st.sampled_from([1, 1, -1]))
    count = 1 if rule is None else draw(st.integers(1, 200))
    return Slot(rule, count, length, draw(st.sampled_from(list(MisfirePolicy))), draw(st.integers(MIN_MISFIRE_GRACE_S, 4_000)))


@given(slot=slots(), pauses=st.lists(st.one_of(st.integers(0, 90), st.integers(0, 9_000), st.integers(0, 900_000)), max_size=25))
@example(slot=Slot("FREQ=MINUTELY;INTERVAL=7", 200, 60, MisfirePolicy.FIRE, 900), pauses=[83_000, 100])
@example(slot=Slot("FREQ=HOURLY", 3, -3_599, MisfirePolicy.SKIP, 0), pauses=[0, 3_600, 3_600, 7_200])
@settings(max_examples=400, deadline=None)
def test_every_edge_is_run_missed_or_superseded_once_and_in_order(slot: Slot, pauses: list[int]) -> None:
    schedule, left, now = slot.schedule(), list(slot.edges), BEGIN - 7_200
    for pause in pauses:
        now += pause
        due = [one for one in left if one[0] <= now]
        is_due = schedule.next_fire_ts is not None and schedule.next_fire_ts <= now
        assert is_due == bool(due)
        if not due:
            continue
        this = decide_due_edge(schedule, now, RECURRENCE)
        latest_ts, latest = due[-1]
        left = left[len(due) :]
        assert this.late_s == now - this.due.ts
        assert this.is_missed == (now - this.due.ts > slot.allowed_s)
        if now - latest_ts <= slot.allowed_s:
            assert (this.due.ts, this.due.edge, this.is_missed) == (latest_ts, latest, False)
        else:  # which of the missed ones is named does not matter: none of them runs
            assert this.is_missed
        assert (this.superseded_count > 0) == (len(due) > 1 and this.due.ts != schedule.next_fire_ts)
        assert this.superseded_count <= len(due) - 1
        outcome = EdgeOutcome.MISSED if this.is_missed else fired_outcome(this.late_s)
        schedule = apply_edge_outcome(schedule, this.due.edge, outcome, this.next_edge, now * 1000)
        assert (schedule.next_fire_ts, schedule.next_edge) == (left[0] if left else (None, None))
        assert (schedule.status is ScheduleStatus.COMPLETED) == (not left)
        if left and not this.is_missed:
            assert schedule.status is (ScheduleStatus.ACTIVE if latest is SwitchEdge.ON else ScheduleStatus.PENDING)
