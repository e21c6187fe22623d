"""Free space of the data directory's file system, and the watermark below which the operator is warned."""

from __future__ import annotations

import shutil
from pathlib import Path

MIB = 1024 * 1024


class DiskSpaceMonitor:
    """`percent` of the file system or `mib`, whichever is smaller, is the watermark. 0 in either turns the warning off."""

    def __init__(self, folder: Path, *, percent: float, mib: int) -> None:
        self._folder = folder
        self._percent = percent
        self._mib = mib

    def free_bytes(self) -> int | None:
        """What a user other than root may still write; None if the directory is gone or cannot be read."""
        try:
            return shutil.disk_usage(self._folder).free
        except OSError:
            return None

    def warning(self) -> str | None:
        """What to tell the operator; None while enough space is free."""
        try:
            usage = shutil.disk_usage(self._folder)
        except OSError:
            return None
        watermark = min(usage.total * self._percent / 100, self._mib * MIB)
        if usage.free >= watermark:
            return None
        return (
            f"Only {usage.free / MIB:.0f} MiB are free on the file system of {self._folder} (warning below "
            f"{watermark / MIB:.0f} MiB). Free some space or keep data for fewer days: a full disk stops all writes."
        )
