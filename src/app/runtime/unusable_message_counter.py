"""Counts the unusable messages of devices, logs them at most once per minute and device, and has their accounts told."""

from __future__ import annotations

import collections

import structlog

from domain.devices.health import DroppedMessageService
from domain.kernel.clock import MINUTE_MS, Clock

MAX_TRACKED_DEVICES = 10_000

log = structlog.get_logger("ingest")


class UnusableMessageCounter:
    def __init__(self, clock: Clock, dropped_messages: DroppedMessageService) -> None:
        self._clock = clock
        self._dropped_messages = dropped_messages
        self._logged_ms: dict[int, int] = {}
        self.counts: collections.Counter[str] = collections.Counter()

    def count(self, device_no: int, code: str, count: int, reason: str = "") -> None:
        self.counts[code] += count
        self._dropped_messages.count(device_no, code, count)
        now_ms = self._clock.monotonic_ms()
        logged_ms = self._logged_ms.get(device_no)
        if logged_ms is not None and now_ms - logged_ms < MINUTE_MS:
            return
        if len(self._logged_ms) >= MAX_TRACKED_DEVICES:
            self._logged_ms.clear()  # a few log lines too many are better than unbounded memory
        self._logged_ms[device_no] = now_ms
        log.warning("dropped an unusable message of a device", device_no=device_no, code=code, count=count, reason=reason[:200])
