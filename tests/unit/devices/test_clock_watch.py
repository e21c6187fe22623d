"""The watch on the machine's clock: what it tells people, and what a believed step is taken for."""

from __future__ import annotations

from typing import Any

import pytest

from domain.devices.absence import Absence, AbsenceTracker
from domain.devices.clock_watch import CLOCK_DOUBTED, CLOCK_TRUSTED, EVENT_INTERVAL_MS, ClockWatch
from domain.kernel.clock import DAY_MS, MINUTE_MS
from domain.kernel.errors import Unavailable
from domain.kernel.steady_time import SteadyTimePersistenceService
from domain.kernel.wall_clock import HOLD_MS, WallClock
from support.device_world import DeviceWorld
from support.manual_clock import ManualClock

WEEK = 7 * 24 * 60


class Machine:
    def __init__(self, world: DeviceWorld, hold_ms: int = HOLD_MS, **more: Any) -> None:
        self.world, self.clock = world, ManualClock(world.clock.now_ms())
        self.wall = WallClock(self.clock.now_ms, self.clock.monotonic_ms, hold_ms=hold_ms)
        self.wall.start(self.clock.now_ms())
        service_clock: Any = JudgedManualClock(self.clock, self.wall)
        self.absence = AbsenceTracker(uow=world.uow, clock=service_clock)
        self.steady_time = SteadyTimePersistenceService(uow=world.uow, clock=service_clock, wall=self.wall)
        self.times: list[int] = []
        self.steps: list[int] = []
        self.watch = ClockWatch(
            uow=world.uow,
            wall=self.wall,
            steady_time=self.steady_time,
            absence=self.absence,
            on_time=self.times.append,
            on_step=lambda: self.steps.append(self.wall.now_ms()),
            **more,
        )

    async def look(self) -> None:
        self.watch.look()
        await self.watch.write_events()

    async def step(self, minutes: float) -> None:
        self.clock.step(minutes=minutes)
        await self.look()

    def events(self) -> list[str]:
        return [event.kind for event in self.world.uow.emitted_events if event.kind in (CLOCK_DOUBTED, CLOCK_TRUSTED)]


class JudgedManualClock:
    """The time that the service goes by."""

    def __init__(self, machine: ManualClock, wall: WallClock) -> None:
        self.now_ms, self.monotonic_ms = wall.now_ms, machine.monotonic_ms
        self.steady_ms, self.set_steady = machine.steady_ms, machine.set_steady


async def test_a_jump_is_told_once_with_what_waits_and_so_is_its_end(world: DeviceWorld) -> None:
    machine = Machine(world)
    before_ms = machine.wall.now_ms()
    await machine.step(40 * 24 * 60)
    await machine.look()
    assert (machine.watch.is_certain, machine.times[-1], machine.events()) == (False, before_ms, [CLOCK_DOUBTED])
    warning = machine.watch.warning()
    assert warning is not None
    assert "jumped 40 d ahead" in warning
    assert "deleting old data" in warning
    await machine.step(-40 * 24 * 60)
    assert (machine.watch.is_certain, machine.watch.warning()) == (True, None)
    assert machine.events() == [CLOCK_DOUBTED, CLOCK_TRUSTED]
    assert (machine.absence.stepped, machine.steps) == (None, []), "the time that the service goes by was never set"


async def test_a_step_that_is_believed_is_an_interval_that_nobody_lived_through(world: DeviceWorld) -> None:
    machine = Machine(world)
    await machine.step(WEEK)
    machine.clock.forward(HOLD_MS)
    await machine.look()
    stepped = machine.absence.stepped
    assert stepped is not None
    assert stepped.until_ms - stepped.since_ms == WEEK * MINUTE_MS
    assert machine.steps == [machine.clock.now_ms()]
    assert machine.absence.stepped_over_s(stepped.since_ms + MINUTE_MS) == WEEK * 60
    assert machine.absence.stepped_over_s(stepped.since_ms - MINUTE_MS) == 0


def test_without_a_hold_a_step_is_followed_by_all_in_the_same_moment(world: DeviceWorld) -> None:
    machine = Machine(world, hold_ms=0)
    before_ms = machine.wall.now_ms()
    machine.clock.step(minutes=WEEK)
    now_ms = machine.wall.now_ms()
    assert machine.times == [now_ms], "the broker stamps messages by the same time"
    assert machine.absence.stepped == Absence(before_ms, now_ms)


async def test_a_step_back_leaves_no_time_out(world: DeviceWorld) -> None:
    machine = Machine(world)
    await machine.step(-WEEK)
    machine.clock.forward(HOLD_MS)
    await machine.look()
    assert (machine.absence.stepped, len(machine.steps)) == (None, 1)


async def test_a_start_that_was_behind_becomes_an_absence_when_the_clock_is_right(world: DeviceWorld) -> None:
    machine = Machine(world)
    stored_ms = machine.clock.now_ms() + 2 * DAY_MS
    machine.wall.start(stored_ms)
    await machine.look()
    assert (machine.times[-1], machine.watch.doubtful_until_ms()) == (stored_ms, None)
    await machine.step(3 * 24 * 60)
    assert machine.watch.is_certain
    current = machine.absence.current
    assert current is not None
    assert current.until_ms - current.since_ms == DAY_MS


async def test_a_start_far_ahead_is_doubtful_until_the_start(world: DeviceWorld) -> None:
    machine = Machine(world)
    machine.wall.start(machine.clock.now_ms() - 40 * DAY_MS)
    await machine.look()
    assert (machine.watch.is_certain, machine.watch.doubtful_until_ms()) == (False, machine.clock.now_ms())
    assert "40 d ahead" in (machine.watch.warning() or "")


async def test_a_clock_that_two_programs_set_in_turn_floods_no_log(world: DeviceWorld) -> None:
    machine = Machine(world)
    for _ in range(5):
        await machine.step(60)
        await machine.step(-60)
    assert (machine.watch.doubt_count, machine.events()) == (5, [CLOCK_DOUBTED, CLOCK_TRUSTED])
    machine.clock.forward(EVENT_INTERVAL_MS)
    await machine.step(60)
    assert machine.events()[2:] == [CLOCK_DOUBTED]


async def test_events_are_written_when_the_database_answers_again(world: DeviceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(world)
    with monkeypatch.context() as patch:

        def refuse(*_: Any, **__: Any) -> Any:
            raise Unavailable("away")

        patch.setattr(world.uow, "write", refuse)
        machine.clock.step(minutes=60)
        machine.watch.look()
        with pytest.raises(Unavailable):
            await machine.watch.write_events()
    assert machine.events() == []
    await machine.look()
    await machine.look()
    assert machine.events() == [CLOCK_DOUBTED]


async def test_an_instance_that_is_not_to_tell_people_writes_nothing(world: DeviceWorld) -> None:
    machine = Machine(world, tells_people=lambda: False)
    await machine.step(60)
    assert machine.events() == []


async def test_a_person_confirms_the_clock_as_it_is_now(world: DeviceWorld) -> None:
    machine = Machine(world)
    await machine.steady_time.start()
    await machine.step(-WEEK)
    async with world.uow.write() as tx:
        await tx.steady_time.confirm_wall_time(machine.clock.now_ms() + 5 * MINUTE_MS)
    await machine.steady_time.keep()
    await machine.look()
    assert not machine.watch.is_certain, "that was another time"
    async with world.uow.write() as tx:
        await tx.steady_time.confirm_wall_time(machine.clock.now_ms())
    await machine.steady_time.keep()
    await machine.look()
    assert (machine.watch.is_certain, machine.wall.now_ms()) == (True, machine.clock.now_ms())
