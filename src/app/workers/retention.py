"""What keeps the database from growing for ever: the retention, the watch on the disk that starts it early, and the moving of old
readings to the reading store.

All of it runs in small steps with a pause after each, so that others can write in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import field

import structlog

from adapters.storage.disk_space import DiskSpaceMonitor
from app.workers.due import DueLoop, WakeEvent
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.telemetry.retention import OldReadingMover, RetentionService

INITIAL_DELAY_S = 60.0
INTERVAL_S = 3_600.0
PAUSE_S = 0.02
DISK_SPACE_INTERVAL_S = 5.0
MOVER_INTERVAL_S = 900.0
CLOCK_INTERVAL_S = 1.0
ROLLUP_WAIT_S = 5.0
"""Until the next round of the mover while hours of older readings have no roll-up yet."""
LATE_AFTER_S = 3_600.0
"""Without a complete round of the mover for so long, `/readyz` warns."""


async def wait_for_certainty(is_certain: Callable[[], bool]) -> None:
    """While the clock is in doubt, nothing is deleted."""
    while not is_certain():  # noqa: ASYNC110 - the clock tells nobody when it is right again
        await asyncio.sleep(CLOCK_INTERVAL_S)


@service
class RetentionWorker:
    """Deletes expired rows once an hour, or earlier when disk space is low, and gives their space back to the file system."""

    name = "retention"

    retention: RetentionService
    release_space: Callable[[], Awaitable[int]]
    """Does one step and returns what it released; 0 when there is no more."""

    wake_event: WakeEvent
    is_clock_certain: Callable[[], bool] = lambda: True
    deleted_rows: int = field(default=0, init=False)

    async def run(self) -> None:
        await self.wake_event.wait(INITIAL_DELAY_S)
        while True:
            await wait_for_certainty(self.is_clock_certain)
            try:
                async for deleted in self.retention.purge_steps():
                    self.deleted_rows += deleted
                    await wait_for_certainty(self.is_clock_certain)
                    await asyncio.sleep(PAUSE_S)
                while True:
                    if not await self.release_space():
                        break
                    await asyncio.sleep(PAUSE_S)
            except Unavailable as error:
                log = structlog.get_logger(self.name)
                log.warning("the database does not answer; expired rows are deleted in the next round", error=str(error))
            await self.wake_event.wait(INTERVAL_S)


@service
class DiskSpaceWorker:
    """Watches the free disk space. Below the watermark it logs a warning and starts the retention early."""

    name = "disk_space"

    disk: DiskSpaceMonitor
    retention_wake: WakeEvent
    _is_low: bool = field(default=False, init=False)

    async def run(self) -> None:
        while True:
            self._check()
            await asyncio.sleep(DISK_SPACE_INTERVAL_S)

    def _check(self) -> None:
        """Log each change once, and start the retention once."""
        warning, log = self.disk.warning(), structlog.get_logger(self.name)
        if warning is not None and not self._is_low:
            log.warning("little disk space is free; expired rows are deleted now", detail=warning)
            self.retention_wake.set()
        elif warning is None and self._is_low:
            log.info("enough disk space is free again")
        self._is_low = warning is not None


@service
class OldReadingMoverWorker(DueLoop):
    """Moves old readings to the reading store every quarter of an hour. While it does not answer, they stay in the database."""

    name = "reading_mover"

    mover: OldReadingMover
    clock: Clock
    is_clock_certain: Callable[[], bool] = lambda: True
    wake_event: WakeEvent = field(default_factory=WakeEvent, init=False)
    _completed_ms: int | None = field(default=None, init=False)
    """Monotonic; None: not running on this instance."""
    moved_messages: int = field(default=0, init=False)

    @property
    def behind_s(self) -> float:
        """Seconds since all readings that are due were moved."""
        return 0.0 if self._completed_ms is None else (self.clock.monotonic_ms() - self._completed_ms) / 1_000

    def warning(self) -> str | None:
        if self.behind_s < LATE_AFTER_S:
            return None
        return "ClickHouse has not taken all older readings for an hour; they stay in the database. See the log."

    async def run(self) -> None:
        self._completed_ms = self.clock.monotonic_ms()
        try:
            await super().run()
        finally:
            self._completed_ms = None

    async def run_once(self) -> float:
        damaged = self.mover.damaged_messages
        await wait_for_certainty(self.is_clock_certain)
        async for moved in self.mover.move_steps():
            self.moved_messages += moved
            await wait_for_certainty(self.is_clock_certain)
            await asyncio.sleep(PAUSE_S)
        if self.mover.damaged_messages > damaged:
            structlog.get_logger(self.name).error(
                "damaged readings were deleted instead of moved; check the disk", messages=self.mover.damaged_messages - damaged
            )
        self._completed_ms = self.clock.monotonic_ms()
        return ROLLUP_WAIT_S if self.mover.waits_for_rollups else MOVER_INTERVAL_S
