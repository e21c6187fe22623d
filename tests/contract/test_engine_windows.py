"""Both evaluators interpret grant windows alike."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from adapters.engine.native import NativeGrantEvaluator
from adapters.engine.reference import ReferenceGrantEvaluator
from domain.grants.model import GrantEvaluator, WeeklyGrantWindow
from domain.kernel.errors import ValidationFailed

BERLIN = "Europe/Berlin"
SATURDAY = frozenset({6})


@pytest.fixture(params=[ReferenceGrantEvaluator, NativeGrantEvaluator], ids=["reference", "native"])
def windows(request: pytest.FixtureRequest) -> GrantEvaluator:
    return request.param()


def at(text: str, zone: str = BERLIN, *, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


def test_no_days_and_no_minutes_are_always_open(windows: GrantEvaluator) -> None:
    assert WeeklyGrantWindow().is_always_open
    assert windows.is_open(WeeklyGrantWindow(), at("2026-11-21 03:00"))


def test_the_first_minute_is_inside_and_the_last_is_not(windows: GrantEvaluator) -> None:
    window = WeeklyGrantWindow(from_minute=540, to_minute=1020, timezone=BERLIN)
    assert not windows.is_open(window, at("2026-11-21 08:59:59.999"))
    assert windows.is_open(window, at("2026-11-21 09:00"))
    assert windows.is_open(window, at("2026-11-21 16:59:59.999"))
    assert not windows.is_open(window, at("2026-11-21 17:00"))


def test_a_window_over_midnight_belongs_to_the_day_it_starts_on(windows: GrantEvaluator) -> None:
    window = WeeklyGrantWindow(SATURDAY, 1320, 120, BERLIN)
    assert not windows.is_open(window, at("2026-11-21 01:00"))
    assert windows.is_open(window, at("2026-11-21 23:00"))
    assert windows.is_open(window, at("2026-11-22 01:59"))
    assert not windows.is_open(window, at("2026-11-22 02:00"))
    assert not windows.is_open(window, at("2026-11-22 23:00"))


def test_equal_minutes_mean_24_hours_from_that_minute(windows: GrantEvaluator) -> None:
    window = WeeklyGrantWindow(SATURDAY, 360, 360, BERLIN)
    assert not windows.is_open(window, at("2026-11-21 05:59"))
    assert windows.is_open(window, at("2026-11-21 06:00"))
    assert windows.is_open(window, at("2026-11-22 05:59"))
    assert not windows.is_open(window, at("2026-11-22 06:00"))


def test_an_hour_that_repeats_is_open_both_times(windows: GrantEvaluator) -> None:
    window = WeeklyGrantWindow(from_minute=120, to_minute=180, timezone=BERLIN)
    assert windows.is_open(window, at("2026-10-25 02:30"))
    assert windows.is_open(window, at("2026-10-25 02:30", fold=1))


def test_a_window_in_the_skipped_hour_opens_the_next_day(windows: GrantEvaluator) -> None:
    window = WeeklyGrantWindow(from_minute=120, to_minute=180, timezone=BERLIN)
    assert windows.next_open_ms(window, at("2026-03-28 04:00")) == at("2026-03-30 02:00")


def test_a_clock_change_can_open_a_window(windows: GrantEvaluator) -> None:
    window = WeeklyGrantWindow(from_minute=150, to_minute=240, timezone=BERLIN)
    assert windows.next_open_ms(window, at("2026-03-29 00:00")) == at("2026-03-29 03:00")


def test_the_next_opening_of_an_open_window_is_now(windows: GrantEvaluator) -> None:
    assert windows.next_open_ms(WeeklyGrantWindow(timezone=BERLIN), 5) == 5


def test_the_next_opening_is_the_start_on_an_active_day(windows: GrantEvaluator) -> None:
    window = WeeklyGrantWindow(frozenset({1, 3}), 540, 600, BERLIN)
    assert windows.next_open_ms(window, at("2026-11-21 12:00")) == at("2026-11-23 09:00")


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "", "../etc/passwd", "/etc/localtime", "Europe"])
def test_an_unknown_zone_is_rejected(windows: GrantEvaluator, zone: str) -> None:
    assert not windows.is_known_timezone(zone)
    with pytest.raises(ValidationFailed, match="IANA"):
        windows.is_open(WeeklyGrantWindow(from_minute=1, to_minute=2, timezone=zone), 0)


@pytest.mark.parametrize("wrong", [{"from_minute": 1}, {"to_minute": 1}, {"from_minute": 0, "to_minute": 1440}])
def test_minutes_come_in_pairs_and_fit_a_day(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationFailed):
        WeeklyGrantWindow(**wrong)


def test_days_are_sunday_to_saturday() -> None:
    with pytest.raises(ValidationFailed):
        WeeklyGrantWindow(frozenset({7}))
