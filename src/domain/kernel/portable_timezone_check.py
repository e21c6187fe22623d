"""Names of time zones that a caller may use."""

from __future__ import annotations

_NOT_PLACES = frozenset({"", "localtime", "posixrules", "Factory", "leapseconds"})
_PARALLEL_TREES = ("posix/", "right/")


def is_portable_timezone(name: str) -> bool:
    """False for files in the zone directory that are no zone of the IANA database: what they say depends on the machine, or
    counts leap seconds."""
    return name not in _NOT_PLACES and not name.startswith(_PARALLEL_TREES)
