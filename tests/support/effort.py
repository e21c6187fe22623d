"""How much a test does: enough to find a fault in a few seconds, or, with `LATCHBOARD_TEST_THOROUGH=1`, more of the same.

`make test` is for everybody who changes something, and stays below ten minutes; CI runs the same tests a second time, thoroughly.
"""

from __future__ import annotations

import os
from typing import TypeVar

THOROUGH = os.environ.get("LATCHBOARD_TEST_THOROUGH", "") not in ("", "0")

T = TypeVar("T")


def effort(usual: T, thorough: T) -> T:
    return thorough if THOROUGH else usual
