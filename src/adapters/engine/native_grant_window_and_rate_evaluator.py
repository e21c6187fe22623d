"""Grant windows and limits by the extension. Windows use the same time zone files as Python's zoneinfo."""

from __future__ import annotations

import zoneinfo
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path

from adapters.engine import _native
from adapters.engine.reference_grant_window_and_rate_evaluator import ReferenceGrantWindowAndRateEvaluator
from domain.grants.model import GrantRateLimitDecision, WeeklyGrantWindow
from domain.grants.reference import load_timezone

MAX_CACHED_WINDOWS = 4096


class NativeGrantWindowAndRateEvaluator(ReferenceGrantWindowAndRateEvaluator):
    """The reference definition answers what only checks of input and texts of denials ask."""

    def __init__(self) -> None:
        self._get_compiled = lru_cache(maxsize=MAX_CACHED_WINDOWS)(_compile_window)

    def is_open(self, window: WeeklyGrantWindow, at_ms: int) -> bool:
        return self._get_compiled(window).is_open(at_ms)

    def rate_allowance(self, uses: Sequence[int], limit: int, now_ms: int) -> GrantRateLimitDecision:
        return GrantRateLimitDecision(*_native.allowance(uses, limit, now_ms))


def _compile_window(window: WeeklyGrantWindow) -> _native.Window:
    days = sum(1 << day for day in window.days)
    rules = read_tzif(window.timezone)
    return _native.Window(days, window.from_minute, window.to_minute, rules, window.timezone)


@lru_cache(maxsize=1024)
def read_tzif(name: str) -> bytes:
    """The zone's TZif bytes (RFC 8536) from the system, else from the tzdata package, as zoneinfo does. Raises
    ValidationFailed."""
    load_timezone(name)  # also rejects names that would leave the directories below
    for folder in zoneinfo.TZPATH:
        path = Path(folder, name)
        if path.is_file():
            return path.read_bytes()
    package, _, resource = f"tzdata.zoneinfo.{name.replace('/', '.')}".rpartition(".")
    return resources.files(package).joinpath(resource).read_bytes()
