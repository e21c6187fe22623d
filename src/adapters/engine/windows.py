"""Grant windows and limits by the extension; windows over the very zone files that Python's zoneinfo reads."""

from __future__ import annotations

import zoneinfo
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path

from adapters.engine.freshness import EngineMissing
from domain.grants.limit import Allowance
from domain.grants.reference import next_open_ms, zone
from domain.grants.window import Window
from domain.kernel.errors import Invalid

try:
    from adapters.engine import _native
except ImportError as missing:
    raise EngineMissing from missing

CACHED_WINDOWS = 4096


class NativeWindows:
    def __init__(self) -> None:
        self._compiled = lru_cache(maxsize=CACHED_WINDOWS)(_compile)

    def knows(self, timezone: str) -> bool:
        try:
            zone(timezone)
        except Invalid:
            return False
        return True

    def is_open(self, window: Window, at_ms: int) -> bool:
        return self._compiled(window).is_open(at_ms)

    def next_open_ms(self, window: Window, at_ms: int) -> int | None:
        """Asked only to word a refusal, so the readable definition answers."""
        return next_open_ms(window, at_ms)

    def allowance(self, uses: Sequence[int], limit: int, now_ms: int) -> Allowance:
        return Allowance(*_native.allowance(uses, limit, now_ms))


def _compile(window: Window) -> _native.Window:
    days = sum(1 << day for day in window.days)
    rules = zone_rules(window.timezone)
    return _native.Window(days, window.from_minute, window.to_minute, rules, window.timezone)


@lru_cache(maxsize=1024)
def zone_rules(name: str) -> bytes:
    """The zone's TZif bytes, found as zoneinfo finds them: the system's, else the tzdata package's. Raises Invalid."""
    zone(name)  # also refuses names that would leave the folders below
    for folder in zoneinfo.TZPATH:
        path = Path(folder, name)
        if path.is_file():
            return path.read_bytes()
    package, _, resource = f"tzdata.zoneinfo.{name.replace('/', '.')}".rpartition(".")
    return resources.files(package).joinpath(resource).read_bytes()
