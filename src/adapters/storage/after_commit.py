"""Calls that wait for a commit. The commit has happened when they run, so none may undo the caller's success."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

_log = logging.getLogger(__name__)


def run_callbacks(calls: Iterable[Callable[[], None]]) -> None:
    """Run each call; one that raises breaks its promise, is logged, and stops none of the others."""
    for call in calls:
        try:
            call()
        except Exception:
            _log.exception("a call after the commit failed; the commit itself stands")
