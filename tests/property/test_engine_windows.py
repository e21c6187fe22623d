"""The native window evaluator equals the reference around every clock change and at random instants."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from adapters.engine.native import NativeGrantEvaluator
from adapters.engine.reference import ReferenceGrantEvaluator
from domain.grants.model import WeeklyGrantWindow

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Asia/Tehran",
    "America/Santiago",
    "Antarctica/Troll",
    "Pacific/Chatham",
    "Africa/Cairo",
    "Asia/Kolkata",
)
HOUR_MS = 3_600_000
SPANS = ((None, None), (0, 60), (120, 180), (150, 130), (1_380, 120), (30, 30), (1_439, 0), (0, 1_439), (540, 1_020))


def _changes(name: str) -> list[int]:
    """Unix ms of the hours around each change of the zone's offset, 1972 to 2050."""
    zone, found = ZoneInfo(name), []
    moment = datetime(1972, 1, 1, tzinfo=UTC)
    day = timedelta(days=1)
    while moment.year < 2050:
        if moment.astimezone(zone).utcoffset() != (moment + day).astimezone(zone).utcoffset():
            found += [int((moment + timedelta(hours=hour)).timestamp() * 1000) for hour in range(25)]
        moment += day
    return found


@pytest.mark.parametrize("name", ZONES)
def test_native_windows_equal_the_reference_across_clock_changes(name: str) -> None:
    chance = random.Random(name)
    native, reference = NativeGrantEvaluator(), ReferenceGrantEvaluator()
    changes = _changes(name)
    changes = chance.sample(changes, min(len(changes), 250))
    instants = changes + [chance.randrange(0, 3_000_000_000_000) for _ in range(200)]
    for start_ms in instants:
        days = frozenset(chance.sample(range(7), chance.randrange(0, 5)))
        window = WeeklyGrantWindow(days, *chance.choice(SPANS), timezone=name)
        for offset_ms in (0, -1, 1, 59_999, 30 * 60_000, HOUR_MS - 1, chance.randrange(-HOUR_MS, HOUR_MS)):
            at_ms = start_ms + offset_ms
            assert native.is_open(window, at_ms) == reference.is_open(window, at_ms), (window, at_ms)


@pytest.mark.parametrize("name", ZONES)
def test_the_next_opening_is_open_and_no_instant_before_it_is(name: str) -> None:
    chance = random.Random(name)
    windows = NativeGrantEvaluator()
    for _ in range(40):
        days = frozenset(chance.sample(range(7), chance.randrange(0, 4)))
        window = WeeklyGrantWindow(days, *chance.choice(SPANS), timezone=name)
        at_ms = chance.randrange(1_600_000_000_000, 2_200_000_000_000)
        opens_ms = windows.next_open_ms(window, at_ms)
        assert opens_ms is not None
        assert windows.is_open(window, opens_ms)
        if opens_ms > at_ms:
            assert not any(windows.is_open(window, probe_ms) for probe_ms in range(at_ms, opens_ms, 7 * 60_000))
            assert not windows.is_open(window, opens_ms - 1)
