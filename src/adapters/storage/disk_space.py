"""Free space of the data directory's file system, and the watermark below which the operator is warned."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DiskUsageSnapshot:
    free_bytes: int
    """What a user other than root may still write."""

    total_bytes: int


class DiskSpaceMonitor:
    """`percent` of the file system or `mib`, whichever is smaller, is the watermark. 0 in either turns the warning off."""

    def __init__(self, folder: Path, *, percent: float, mib: int) -> None:
        self._folder = folder
        self._percent = percent
        self._mib = mib

    def read(self) -> DiskUsageSnapshot | None:
        """None if the directory is gone or cannot be read."""
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return None
        return DiskUsageSnapshot(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def free_bytes(self) -> int | None:
        usage = self.read()
        return None if usage is None else usage.free_bytes

    def warning(self) -> str | None:
        """What to tell the operator; None while enough space is free."""
        usage = self.read()
        if usage is None:
            return None
        watermark = min(usage.total_bytes * self._percent / 100, self._mib * MIB)
        if usage.free_bytes >= watermark:
            return None
        return (
            f"Only {usage.free_bytes / MIB:.0f} MiB are free on the file system of {self._folder} (warning below "
            f"{watermark / MIB:.0f} MiB). Free some space or keep data for fewer days: a full disk stops all writes."
        )
