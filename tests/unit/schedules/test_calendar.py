"""The calendar of planned switches."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from domain.kernel.errors import ValidationFailed
from domain.schedules import service
from domain.schedules.model import SwitchEdge
from domain.schedules.service import ScheduleOccurrenceService
from support.schedule_world import DAY, HOUR, NOW, ScheduleWorld

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def planned(world: ScheduleWorld) -> ScheduleOccurrenceService:
    return ScheduleOccurrenceService(uow=world.uow, clock=world.clock, recurrence=world.recurrence)


def ms(*date: int) -> int:
    return int(datetime(*date, tzinfo=BERLIN).timestamp()) * 1000


async def test_a_single_slot_appears_with_both_switches_and_a_paused_one_too(
    world: ScheduleWorld, planned: ScheduleOccurrenceService
) -> None:
    device = await world.device()
    await world.put(device, NOW + HOUR, NOW + 2 * HOUR, enabled=False)
    found = await planned.list(world.session(), NOW * 1000, (NOW + DAY) * 1000)
    assert [(each.edge, each.at_ts) for each in found.occurrences] == [
        (SwitchEdge.ON, NOW + HOUR),
        (SwitchEdge.OFF, NOW + 2 * HOUR),
    ]
    assert found.is_complete
    assert (await planned.list(world.session(), (NOW + 2 * HOUR + 1) * 1000, (NOW + DAY) * 1000)).occurrences == []


async def test_clock_times_stay_when_the_clocks_change(world: ScheduleWorld, planned: ScheduleOccurrenceService) -> None:
    device = await world.device()
    on, off = ms(2027, 3, 20, 6) // 1000, ms(2027, 3, 20, 7) // 1000
    await world.put(device, on, off, rrule="FREQ=DAILY", timezone="Europe/Berlin")
    found = await planned.list(world.session(), ms(2027, 3, 27), ms(2027, 3, 30))
    starts = [each.at_ts for each in found.occurrences if each.edge is SwitchEdge.ON]
    assert [datetime.fromtimestamp(at, BERLIN).hour for at in starts] == [6, 6, 6]
    assert starts[1] - starts[0] == 23 * HOUR  # 28 March 2027: the clocks go forward
    assert {datetime.fromtimestamp(each.at_ts, BERLIN).hour for each in found.occurrences} == {6, 7}


async def test_a_span_that_is_too_long_is_refused_and_too_many_switches_are_cut(
    world: ScheduleWorld, planned: ScheduleOccurrenceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for until in (NOW * 1000, (NOW + 36 * DAY) * 1000):
        with pytest.raises(ValidationFailed):
            await planned.list(world.session(), NOW * 1000, until)
    monkeypatch.setattr(service, "MAX_OCCURRENCES", 3)
    device = await world.device()
    await world.put(device, NOW + HOUR, NOW + 2 * HOUR, rrule="FREQ=DAILY")
    cut = await planned.list(world.session(), NOW * 1000, (NOW + 7 * DAY) * 1000)
    assert (len(cut.occurrences), cut.is_complete) == (3, False)
