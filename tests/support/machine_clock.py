"""The wall clock of the whole program, Rust and Python, set while it runs: libfaketime stands before the C library.

    clock = MachineClock(folder)
    with Service(folder / "service", folder, **clock.settings) as service:
        clock.step(hours=-1)

The monotonic clock stays real, as on a machine whose clock is set.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest


class MachineClock:
    def __init__(self, folder: Path) -> None:
        """Skips the test where libfaketime is not installed."""
        libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not libraries:
            pytest.skip("libfaketime is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        self._offset_file = folder / "faketime"
        self._offset_s = 0
        self.settings: dict[str, Any] = {
            "LD_PRELOAD": libraries[0],
            "FAKETIME_TIMESTAMP_FILE": self._offset_file,
            "FAKETIME_NO_CACHE": 1,
            "FAKETIME_DONT_FAKE_MONOTONIC": 1,
            "DONT_FAKE_MONOTONIC": 1,
            "NO_FAKE_STAT": 1,
        }
        self.step(hours=0)

    def step(self, *, hours: float) -> None:
        """Forward, or back. Replaced as a whole, so that nobody reads half a number."""
        self._offset_s += round(hours * 3_600)
        fresh = self._offset_file.with_suffix(".new")
        fresh.write_text(f"{self._offset_s:+d}s\n")
        fresh.rename(self._offset_file)

    def now_ms(self) -> int:
        """What the program takes for the present."""
        return time.time_ns() // 1_000_000 + self._offset_s * 1_000
