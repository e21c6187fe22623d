"""What devices send that cannot be used: counted always, logged at most once a minute a device."""

from __future__ import annotations

from collections import Counter

import structlog

from domain.kernel.clock import MINUTE_MS, Clock

MAX_TRACKED_DEVICES = 10_000

log = structlog.get_logger("uplink")


class FaultLog:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged_ms: dict[int, int] = {}
        self.counts: Counter[str] = Counter()

    def count(self, device_no: int, code: str, count: int, why: str = "") -> None:
        self.counts[code] += count
        now_ms = self._clock.now_ms()
        if now_ms - self._logged_ms.get(device_no, 0) < MINUTE_MS:
            return
        if len(self._logged_ms) >= MAX_TRACKED_DEVICES:
            self._logged_ms.clear()  # a fleet of offenders: a few lines too many are the lesser evil
        self._logged_ms[device_no] = now_ms
        log.warning("dropped what a device sent", device_no=device_no, code=code, count=count, why=why[:200])
