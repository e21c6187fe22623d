"""The wall clock of the whole program, Rust and Python, set while it runs: libfaketime stands before the C library.

    clock = MachineClock(folder / "clock")
    with Service(folder / "service", folder, **clock.settings) as service:
        ...
        await clock.step_running(service, owner, hours=-1)

The monotonic clock stays real, as on a machine whose clock is set. The service believes each step: a test of its doubt takes
`DOUBTING` besides. The offset is in a file that the library reads again each second.
Not at each call: the file would be opened and read under one lock at every reading of any clock, of which a service under load makes
thousands a second, and it would do nothing else.

`FAKETIME_FORCE_MONOTONIC_FIX=0`: the library corrects waits by the monotonic clock for an old C library, and each wait of a thread
for Python's global lock would end at once. The thread would try again and again and take a whole processor.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

CACHE_S = 1
DOUBTING = {"LATCHBOARD_CLOCK_HOLD_S": 3_600}
NEAR_MS = 20_000
"""A step takes effect within this time; the library knows whole seconds only."""
_NAMES = ("libfaketimeMT.so.1", "libfaketime.so.1")
_FOLDERS = (*sorted(Path("/usr/lib").glob("*/faketime")), Path("/usr/lib/faketime"))
LIBRARY = next((folder / name for name in _NAMES for folder in _FOLDERS if (folder / name).exists()), None)
"""None where libfaketime is not installed."""


class MachineClock:
    def __init__(self, folder: Path) -> None:
        """Skips the test where libfaketime is not installed."""
        if LIBRARY is None:
            pytest.skip("libfaketime is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        self._offset_file = folder / "faketime"
        self._offset_s = 0
        self.settings: dict[str, Any] = {
            "LD_PRELOAD": LIBRARY,
            "FAKETIME_TIMESTAMP_FILE": self._offset_file,
            "FAKETIME_CACHE_DURATION": CACHE_S,
            "FAKETIME_DONT_FAKE_MONOTONIC": 1,
            "FAKETIME_FORCE_MONOTONIC_FIX": 0,
            "DONT_FAKE_MONOTONIC": 1,
            "NO_FAKE_STAT": 1,
            "LATCHBOARD_CLOCK_HOLD_S": 0,
        }
        self.set(0)

    def set(self, offset_s: int) -> None:
        """Within `CACHE_S` the clock will differ from the true one by so much. The file is replaced as a whole, so that nobody
        reads half a number."""
        self._offset_s = offset_s
        fresh = self._offset_file.with_suffix(".new")
        fresh.write_text(f"{offset_s:+d}s\n", encoding="ascii")
        fresh.replace(self._offset_file)

    def step(self, *, hours: float) -> None:
        """Forward, or back."""
        self.set(self._offset_s + round(hours * 3_600))

    async def step_running(self, service: Service, owner: ApiClient, *, hours: float) -> None:
        """Returns when the running service has the new time. The owner is signed in again: an access token is valid by the wall
        clock."""
        self.step(hours=hours)
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                await service.sign_in_again(owner)
                claims = owner.headers["Authorization"].split(".")[1]
                issued_ms = json.loads(base64.urlsafe_b64decode(claims + "=="))["iat"] * 1_000
                if abs(issued_ms - self.now_ms()) < NEAR_MS:
                    return
                await asyncio.sleep(0.2)

    def now_ms(self) -> int:
        """What the program takes for the present, once a step has taken effect."""
        return time.time_ns() // 1_000_000 + self._offset_s * 1_000
