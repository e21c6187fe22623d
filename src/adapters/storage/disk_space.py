"""Free space of the data directory's file system, and the watermark below which the operator is warned."""

from __future__ import annotations

import shutil
from pathlib import Path

from domain.kernel.dataclasses import service

MIB = 1024 * 1024


@service
class DiskSpaceMonitor:
    """`percent` of the file system or `mib`, whichever is smaller, is the watermark. 0 in either turns the warning off."""

    folder: Path
    percent: float
    mib: int

    def free_bytes(self) -> int | None:
        """What a user other than root may still write; None if the directory is gone or cannot be read."""
        try:
            return shutil.disk_usage(self.folder).free
        except OSError:
            return None

    def warning(self) -> str | None:
        """What to tell the operator; None while enough space is free."""
        try:
            usage = shutil.disk_usage(self.folder)
        except OSError:
            return None
        watermark = min(usage.total * self.percent / 100, self.mib * MIB)
        if usage.free >= watermark:
            return None
        return (
            f"Only {usage.free / MIB:.0f} MiB are free on the file system of {self.folder} (warning below "
            f"{watermark / MIB:.0f} MiB). Free some space or keep data for fewer days: a full disk stops all writes."
        )
