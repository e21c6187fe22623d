"""How much a test does: enough to find a fault in a few seconds, or, with `LATCHBOARD_TEST_THOROUGH=1`, more of the same.

`make test` is for everybody who changes something: every file, on SQLite alone where a whole program is killed or stalled. CI
runs what kills, generates and builds a second time, thoroughly and on both databases.
"""

from __future__ import annotations

import os
from typing import TypeVar

import pytest

THOROUGH = os.environ.get("LATCHBOARD_TEST_THOROUGH", "") not in ("", "0")

T = TypeVar("T")

thorough_run_only = pytest.mark.skipif(not THOROUGH, reason="takes long; a thorough run does it")


def usual_or_thorough(usual: T, thorough: T) -> T:
    return thorough if THOROUGH else usual
