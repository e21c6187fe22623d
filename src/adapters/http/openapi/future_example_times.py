"""An expiry in the examples: the service refuses some of more than a year ahead, so the served one moves with the days."""

from __future__ import annotations

from domain.kernel.clock import DAY_MS, to_iso

EXPIRES_AT, EXPIRES_AFTER_MS = "2035-01-01T00:00:00.000Z", 30 * DAY_MS
"""The time that stands for it in the examples, and how long after the day of the request it is."""


def with_times_to_come(document: str, now_ms: int) -> str:
    """The text of the document with examples that can be sent now."""
    return document.replace(EXPIRES_AT, to_iso(now_ms // DAY_MS * DAY_MS + EXPIRES_AFTER_MS))
