"""A wall clock that a test sets, for the real program: `step` moves it while the program runs, or while it is down.

clock = AdjustableClock(folder)
with Service(folder / "service", clock.folder) as service: …
"""

from __future__ import annotations

import time
from pathlib import Path

from support.startup_code import write_startup_code

_SHIM = """
import os
import time
from pathlib import Path

_hand = Path({hand!r})
_real_ns = time.time_ns

def _ahead_ns():
    return int(_hand.read_text() or 0) * 1_000_000_000

os.environ.setdefault("LATCHBOARD_CLOCK_HOLD_S", "0")
time.time_ns = lambda: _real_ns() + _ahead_ns()
time.time = lambda: time.time_ns() / 1e9
"""


class AdjustableClock:
    def __init__(self, folder: Path) -> None:
        self.shim_folder = folder / "clock"
        """Put it before the sources in PYTHONPATH."""
        self._offset_file = folder / "hand"
        self._offset_s = 0
        write_startup_code(self.shim_folder, _SHIM.format(hand=str(self._offset_file)))
        self._offset_file.write_text("0")

    def step(self, seconds: int) -> None:
        """Move the clock forward or back. The file is replaced, so that no reader sees half a number."""
        self._offset_s += seconds
        fresh = self._offset_file.with_suffix(".new")
        fresh.write_text(str(self._offset_s))
        fresh.rename(self._offset_file)

    def now(self) -> int:
        """The Unix second that the program sees."""
        return int(time.time()) + self._offset_s
