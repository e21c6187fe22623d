"""Callbacks that run after the commit. The transaction has succeeded by then, so a failing callback must not undo that."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

_log = logging.getLogger(__name__)


def run_callbacks(calls: Iterable[Callable[[], None]]) -> None:
    """Run every callback. One that raises is logged, and the others still run."""
    for call in calls:
        try:
            call()
        except Exception:
            _log.exception("a callback failed after the commit; the commit itself succeeded")
