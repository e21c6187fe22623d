"""How much a test does: a few seconds by default, more with `LATCHBOARD_TEST_THOROUGH=1`.

`make test` runs every file; tests that kill or stall a whole program use SQLite only. The modules that kill, generate and build are
marked `thorough`: CI runs them a second time (`-m thorough`), at full length and on both databases. The other modules that ask here
do more when somebody sets the variable.
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
