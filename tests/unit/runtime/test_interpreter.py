"""What a library is not given at the start stays there for everybody else."""

from __future__ import annotations

import subprocess
import sys

from support.service import environment

LOADED = """
import sys
from app.runtime import interpreter
interpreter.import_structlog()
interpreter.import_hypercorn()
parts = "rich", "pygments", "greenlet", "h2", "h2.events", "priority"
assert not [name for name in parts if name in sys.modules]
assert {"structlog", "hypercorn.asyncio"} <= set(sys.modules)
import greenlet, h2.events, priority, rich.console
assert h2.events.RequestReceived and rich.console.Console and greenlet.greenlet and priority.PriorityTree
"""
ALREADY_THERE = """
import h2.events, rich
from app.runtime import interpreter
interpreter.import_structlog()
interpreter.import_hypercorn()
import sys
assert sys.modules["rich"] is rich and sys.modules["h2.events"] is h2.events
"""


def run(program: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_the_libraries_leave_out_what_is_never_used_and_others_can_import_it() -> None:
    run(LOADED)


def test_what_is_imported_already_stays() -> None:
    run(ALREADY_THERE)
