"""How much a test does: a few seconds by default, more with `LATCHBOARD_TEST_THOROUGH=1`.

`make test` runs every file; tests that kill or stall a whole program use SQLite only. CI runs the tests that kill, generate and
build a second time, thoroughly and on both databases.
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
