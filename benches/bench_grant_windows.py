"""Whether a grant's window is open: native beside zoneinfo and dateutil."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from dateutil import tz

from adapters.engine.native import NativeGrantEvaluator, read_tzif
from adapters.engine.reference import ReferenceGrantEvaluator
from domain.grants.model import WeeklyGrantWindow

Cpu = Callable[[Callable[[], object], int], float]
WINDOW = WeeklyGrantWindow(frozenset({1, 2, 3, 4, 5}), 480, 1_080, "Europe/Berlin")
_CHANCE = random.Random(5)
INSTANTS = sorted(1_790_000_000_000 + _CHANCE.randrange(30 * 86_400_000) for _ in range(20_000))


def with_dateutil(at_ms: int) -> bool:
    local = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(tz.gettz(WINDOW.timezone))
    return local.isoweekday() % 7 in WINDOW.days and 480 <= local.hour * 60 + local.minute < 1_080


@pytest.mark.parametrize("contender", ["native", "native through the port", "zoneinfo", "dateutil"])
def test_is_open(cpu: Cpu, contender: str) -> None:
    from adapters.engine import _native

    native, reference = NativeGrantEvaluator(), ReferenceGrantEvaluator()
    days = sum(1 << day for day in WINDOW.days)
    compiled = _native.Window(days, WINDOW.from_minute, WINDOW.to_minute, read_tzif(WINDOW.timezone), WINDOW.timezone)
    is_open_at: Callable[[int], bool] = {
        "native": compiled.is_open,
        "native through the port": lambda at_ms: native.is_open(WINDOW, at_ms),
        "zoneinfo": lambda at_ms: reference.is_open(WINDOW, at_ms),
        "dateutil": with_dateutil,
    }[contender]
    assert all(is_open_at(at_ms) == reference.is_open(WINDOW, at_ms) for at_ms in INSTANTS)
    cpu(lambda: [is_open_at(at_ms) for at_ms in INSTANTS], len(INSTANTS))
