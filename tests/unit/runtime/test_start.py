"""A clock that differs from the database's by more than a second is named, with the direction."""

from __future__ import annotations

import pytest

from app.runtime.start import find_clock_problem
from support.manual_clock import ManualClock


class Server:
    """Its clock is `offset_ms` ahead of the machine's; it takes `delay_s` before and after it looks."""

    def __init__(self, clock: ManualClock, offset_ms: int, delay_s: float) -> None:
        self._clock, self._offset_ms, self._delay_s = clock, offset_ms, delay_s

    async def clock_ms(self) -> int:
        self._clock.forward(seconds=self._delay_s)
        now_ms = self._clock.now_ms() + self._offset_ms
        self._clock.forward(seconds=self._delay_s)
        return now_ms


@pytest.mark.parametrize(
    ("offset_ms", "delay_s", "said"),
    [
        (0, 0, None),
        (1_000, 0, None),
        (-1_000, 0, None),
        (1_001, 0, "1.0 s behind the database's"),
        (-2_500, 0, "2.5 s ahead of the database's"),
        (0, 5, None),
        (5_500, 5, None),
        (6_500, 5, "1.5 s behind the database's"),
    ],
)
async def test_a_clock_that_is_off_by_more_than_a_second_is_named(offset_ms: int, delay_s: float, said: str | None) -> None:
    clock = ManualClock()
    problem = await find_clock_problem(Server(clock, offset_ms, delay_s), clock)
    assert (problem is None) == (said is None)
    assert said is None or said in (problem or "")


class NoServer:
    async def clock_ms(self) -> None:
        return None


async def test_a_database_in_a_file_has_no_clock_of_its_own() -> None:
    assert await find_clock_problem(NoServer(), ManualClock()) is None
