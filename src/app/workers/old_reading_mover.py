"""Moves old readings to the reading store every quarter of an hour. While it does not answer, they stay in the database."""

from __future__ import annotations

import asyncio
from dataclasses import field

import structlog

from app.workers.due_task_worker import DueTaskWorker
from app.workers.wake_event import WakeEvent
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.telemetry.retention import OldReadingMover

INTERVAL_S = 900.0
ROLLUP_WAIT_S = 5.0
"""Until the next round while hours of older readings have no roll-up yet."""
PAUSE_S = 0.02
LATE_AFTER_S = 3_600.0
"""Without a complete round for so long, `/readyz` warns."""

log = structlog.get_logger("reading_mover")


@service
class OldReadingMoverWorker(DueTaskWorker):
    name = "reading_mover"

    mover: OldReadingMover
    clock: Clock
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
        async for moved in self.mover.move_steps():
            self.moved_messages += moved
            await asyncio.sleep(PAUSE_S)
        if self.mover.damaged_messages > damaged:
            log.error(
                "damaged readings were deleted instead of moved; check the disk", messages=self.mover.damaged_messages - damaged
            )
        self._completed_ms = self.clock.monotonic_ms()
        return ROLLUP_WAIT_S if self.mover.waits_for_rollups else INTERVAL_S
