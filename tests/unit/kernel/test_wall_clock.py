"""Whether the wall clock is believed: what is counted on, what ends a doubt, and what a start does with a wrong clock."""

from __future__ import annotations

import pytest

from domain.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from domain.kernel.wall_clock import EARLIEST_PLAUSIBLE_MS, HOLD_MS, SYNCHRONIZED_HOLD_MS, ClockDecision, DoubtKind, WallClock

START_MS = 1_800_000_000_000


class Machine:
    """Its clocks, and the judge of the wall clock."""

    def __init__(self, hold_ms: int = HOLD_MS, wall_ms: int = START_MS) -> None:
        self.monotonic_ms, self.wall_ms, self.is_synchronized = 1_000, wall_ms, False
        self.clock = WallClock(
            lambda: self.wall_ms, lambda: self.monotonic_ms, hold_ms=hold_ms, is_synchronized=lambda: self.is_synchronized
        )
        self.clock.start(None)

    def pass_ms(self, ms: int) -> list[ClockDecision]:
        self.monotonic_ms += ms
        self.wall_ms += ms
        return self.clock.judge()

    def step(self, ms: int) -> list[ClockDecision]:
        self.wall_ms += ms
        return self.clock.judge()

    def restarted(self, stored_ms: int, age_ms: int = 0) -> list[ClockDecision]:
        self.clock.start(stored_ms, age_ms)
        return self.clock.judge()

    @property
    def kind(self) -> DoubtKind | None:
        return None if self.clock.doubt is None else self.clock.doubt.kind


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.mark.parametrize("step_ms", [40 * DAY_MS, -40 * DAY_MS, HOUR_MS, -3 * MINUTE_MS])
def test_a_jump_is_counted_on_and_leaves_nothing_when_the_clock_returns(machine: Machine, step_ms: int) -> None:
    [begun] = machine.step(step_ms)
    assert (machine.kind, begun.doubt.by_ms, begun.step_ms) == (DoubtKind.STEPPED, step_ms, 0)
    assert machine.clock.now_ms() == START_MS
    assert machine.pass_ms(75 * SECOND_MS) == []
    assert machine.clock.now_ms() == START_MS + 75 * SECOND_MS
    [ended] = machine.step(-step_ms)
    assert (machine.kind, ended.is_over, ended.step_ms) == (None, True, 0)
    assert machine.clock.now_ms() == START_MS + 75 * SECOND_MS


def test_slow_corrections_and_small_steps_are_followed(machine: Machine) -> None:
    for step_ms in (90 * SECOND_MS, -90 * SECOND_MS, 1, -1):
        assert machine.step(step_ms) == []
        assert machine.clock.now_ms() == machine.wall_ms


@pytest.mark.parametrize("step_ms", [2 * HOUR_MS, -2 * HOUR_MS])
def test_a_step_that_holds_is_believed_at_last(machine: Machine, step_ms: int) -> None:
    machine.step(step_ms)
    assert machine.pass_ms(HOLD_MS - 1) == []
    before_ms = machine.clock.now_ms() + 1
    [ended] = machine.pass_ms(1)
    assert (ended.is_over, ended.step_ms, ended.until_ms) == (True, step_ms, before_ms)
    assert machine.clock.now_ms() == machine.wall_ms


def test_a_clock_that_keeps_jumping_has_not_held(machine: Machine) -> None:
    for _ in range(5):
        machine.step(HOUR_MS)
        machine.pass_ms(HOLD_MS - 1)
        assert machine.kind is DoubtKind.STEPPED
    assert machine.pass_ms(1)[0].is_over


def test_a_time_service_is_believed_when_its_answer_has_held(machine: Machine) -> None:
    machine.is_synchronized = True
    machine.step(DAY_MS)
    machine.pass_ms(SYNCHRONIZED_HOLD_MS - 1)
    assert machine.kind is DoubtKind.STEPPED
    assert machine.pass_ms(1)[0].step_ms == DAY_MS


def test_a_person_is_believed_at_once(machine: Machine) -> None:
    machine.step(-DAY_MS)
    [ended] = machine.clock.judge(confirmed=True)
    assert (ended.is_over, ended.step_ms) == (True, -DAY_MS)


def test_a_clock_of_1970_is_not_believed_however_long_it_holds(machine: Machine) -> None:
    machine.step(-START_MS)
    assert machine.pass_ms(10 * HOLD_MS) == []
    assert machine.clock.now_ms() == START_MS + 10 * HOLD_MS


def test_without_a_hold_every_step_is_believed() -> None:
    machine = Machine(hold_ms=0)
    machine.wall_ms += HOUR_MS
    assert machine.clock.now_ms() == machine.wall_ms, "also between two judgements"
    assert [decision.step_ms for decision in machine.clock.judge()] == [0, HOUR_MS]
    for step_ms in (40 * DAY_MS, -80 * DAY_MS):
        assert [decision.is_over for decision in machine.step(step_ms)] == [False, True]
        assert machine.clock.now_ms() == machine.wall_ms
    assert machine.restarted(machine.wall_ms + DAY_MS) == []


def test_a_stop_of_a_day_is_a_stop(machine: Machine) -> None:
    assert machine.restarted(START_MS - DAY_MS) == []
    assert machine.restarted(START_MS) == []


def test_a_start_behind_counts_on_from_what_is_stored_until_the_clock_is_right(machine: Machine) -> None:
    stored_ms = START_MS + 2 * DAY_MS
    [begun] = machine.restarted(stored_ms)
    assert (machine.kind, begun.doubt.by_ms) == (DoubtKind.BEHIND, -2 * DAY_MS)
    assert machine.clock.now_ms() == stored_ms
    machine.pass_ms(3 * HOLD_MS)
    assert machine.kind is DoubtKind.BEHIND
    assert machine.clock.now_ms() == stored_ms + 3 * HOLD_MS
    [ended] = machine.step(2 * DAY_MS + 6 * HOUR_MS)
    assert (ended.is_over, ended.step_ms, machine.clock.now_ms()) == (True, 6 * HOUR_MS, machine.wall_ms)


def test_another_clock_tells_how_long_the_stop_was(machine: Machine) -> None:
    machine.restarted(START_MS + HOUR_MS, age_ms=HOUR_MS)
    assert machine.clock.now_ms() == START_MS + 2 * HOUR_MS


def test_a_start_behind_is_believed_when_a_time_service_says_so(machine: Machine) -> None:
    machine.restarted(START_MS + DAY_MS)
    machine.is_synchronized = True
    assert machine.clock.judge()[0].step_ms == -DAY_MS


def test_a_start_far_ahead_goes_by_the_clock_and_is_in_doubt(machine: Machine) -> None:
    [begun] = machine.restarted(START_MS - 41 * DAY_MS)
    assert (machine.kind, begun.doubt.by_ms) == (DoubtKind.AHEAD, 41 * DAY_MS)
    assert machine.clock.now_ms() == START_MS
    machine.pass_ms(HOLD_MS - 1)
    assert machine.kind is DoubtKind.AHEAD
    [ended] = machine.pass_ms(1)
    assert (ended.is_over, ended.step_ms) == (True, 0)


def test_a_start_far_ahead_that_returns_is_right(machine: Machine) -> None:
    machine.restarted(START_MS - 41 * DAY_MS)
    machine.pass_ms(MINUTE_MS)
    [ended] = machine.step(-41 * DAY_MS + HOUR_MS)
    assert (ended.is_over, ended.step_ms) == (True, -41 * DAY_MS + HOUR_MS)
    assert machine.clock.now_ms() == machine.wall_ms


def test_a_machine_without_a_battery_waits_for_its_time_at_the_first_start() -> None:
    machine = Machine(wall_ms=0)
    assert (machine.kind, machine.clock.now_ms()) == (DoubtKind.BEHIND, EARLIEST_PLAUSIBLE_MS)
    machine.clock.judge()
    [ahead] = machine.step(START_MS)
    assert (machine.kind, ahead.is_over, machine.clock.now_ms()) == (DoubtKind.AHEAD, False, START_MS)
    machine.is_synchronized = True
    [ended] = machine.clock.judge()
    assert (ended.is_over, ended.step_ms) == (True, 0)


def test_a_process_that_is_held_up_between_two_readings_sees_no_step() -> None:
    passed_ms = 0

    def held_up_ms() -> int:
        """An hour passes after the first reading of the two."""
        nonlocal passed_ms
        read_ms, passed_ms = passed_ms, HOUR_MS
        return read_ms

    clock = WallClock(lambda: START_MS + passed_ms, held_up_ms)
    clock.start(None)
    passed_ms = 0
    assert clock.now_ms() == START_MS + HOUR_MS
    assert clock.doubt is None
