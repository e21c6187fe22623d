"""How the interpreter is set for a program that keeps many objects for as long as it runs: when it collects garbage, and which
parts of libraries it does not import.

Some libraries import parts that this program never uses and that would stay in its memory, 5 MiB. They import them where they
begin, so they are imported here before anything else imports them.
"""

from __future__ import annotations

import gc
import importlib
import sys
from types import ModuleType
from typing import Any

GC_THRESHOLDS = (50_000, 20, 100)
"""Python's defaults suit programs with few objects."""
STRUCTLOG_EXTRAS = ("rich", "greenlet")
"""It does without them where they are not installed. Rich, with Pygments, is for tracebacks in colour, which the log never has;
greenlet is for values by greenlet, and here they are kept by context."""
HTTP2 = ("h2", "h2.connection", "h2.events", "h2.exceptions", "priority")
"""Hypercorn uses them with the first HTTP/2 connection, and `adapters/http/server/hypercorn.py` accepts none."""


def pause() -> None:
    """Collect nothing until `relax`. Of the time of imports a fifth goes into collections, which free nothing."""
    gc.disable()


def relax() -> None:
    """Collect less often than by default."""
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def freeze() -> None:
    """Exclude what the start created from later collections: to traverse it costs 10 to 25 percent of the request rate.
    Nothing is collected before: that takes a sixth of a start and frees one object in a hundred."""
    gc.freeze()
    relax()


def import_structlog() -> None:
    _import_with("structlog", dict.fromkeys(STRUCTLOG_EXTRAS))  # None: the import system says that there is none


def import_hypercorn() -> None:
    _import_with("hypercorn.asyncio", {name: ModuleType(name) for name in HTTP2})


def _import_with(library: str, stand_ins: dict[str, Any]) -> None:
    """`stand_ins`: what the library gets instead of these modules, unless they are there already. Everybody else gets the modules
    themselves."""
    ours = {name: stand_in for name, stand_in in stand_ins.items() if name not in sys.modules}
    sys.modules.update(ours)
    try:
        importlib.import_module(library)
    finally:
        for name in ours:
            del sys.modules[name]
