"""What a request could not finish: readings of deleted devices, and changes that the link did not take.

Runs once at the start, for what a crash left behind, and then when the bell says that there is something. It erases for a third
of the time at the most: who else writes finds the writer free after each step.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from app.loops.doorbell import Doorbell
from app.loops.waking import until
from domain.devices.admission import Admission
from domain.devices.erasure import Erasure
from domain.kernel.clock import Clock

PAUSES_S = (0.1, 0.5, 1.0, 2.0, 5.0)
LONGEST_SLEEP_S = 3600.0
SHORTEST_REST_S = 0.002
LONGEST_REST_S = 1.0

log = structlog.get_logger("device_upkeep")


class DeviceUpkeepLoop:
    name = "device_upkeep"

    def __init__(self, *, erasure: Erasure, admission: Admission, clock: Clock, bell: Doorbell) -> None:
        self._erasure = erasure
        self._admission = admission
        self._clock = clock
        self._bell = bell
        self.failures = 0

    async def run(self) -> None:
        attempt = 0
        while True:
            settled, due_ms = False, None
            try:
                settled = await self._admission.settle_owed()
                due_ms = await self._erasure.finish(Rest())
            except Exception as error:
                self.failures += 1
                settled = False
                log.warning("upkeep of devices waits", error=repr(error), attempt=attempt)
            if settled:
                attempt = 0
                await self._bell.wait(until(due_ms, self._clock.now_ms(), LONGEST_SLEEP_S))
            else:
                log.warning("the device link does not take a change; it is told again", owed=self._admission.owed)
                await asyncio.sleep(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
                attempt += 1


class Rest:
    """Twice as long as the step before it took."""

    def __init__(self) -> None:
        self._ended = time.perf_counter()

    async def __call__(self) -> None:
        took = time.perf_counter() - self._ended
        await asyncio.sleep(min(max(SHORTEST_REST_S, 2 * took), LONGEST_REST_S))
        self._ended = time.perf_counter()
