"""Watches the free disk space. Below the watermark it logs a warning and starts the retention early."""

from __future__ import annotations

import asyncio

import structlog

from adapters.storage.disk_space import DiskSpaceMonitor
from app.workers.wake_event import WakeEvent

INTERVAL_S = 5.0

log = structlog.get_logger("disk_space")


class LowDiskRetentionTriggerWorker:
    name = "disk_space"

    def __init__(self, *, disk: DiskSpaceMonitor, retention_wake: WakeEvent) -> None:
        self._disk = disk
        self._retention_wake = retention_wake
        self._is_low = False

    async def run(self) -> None:
        while True:
            self._check()
            await asyncio.sleep(INTERVAL_S)

    def _check(self) -> None:
        """Log each change once, and start the retention once."""
        warning = self._disk.warning()
        if warning is not None and not self._is_low:
            log.warning("little disk space is free; expired rows are deleted now", detail=warning)
            self._retention_wake.set()
        elif warning is None and self._is_low:
            log.info("enough disk space is free again")
        self._is_low = warning is not None
