"""Wakes a worker that sleeps until something is due. Set before the wait, the event ends the next wait; set twice, it wakes
once. `set_count` lets another part see whether it was set since it last looked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


class WakeEvent:
    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.set_count = 0

    def set(self) -> None:
        """Call this from the thread of the event loop only."""
        self.set_count += 1
        self._event.set()

    async def wait(self, timeout_s: float | None) -> bool:
        """True when the event was set, False when the time was up. Clears the event."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


@dataclass(slots=True)
class WakeEvents:
    """One event for each worker that sleeps until something is due."""

    dispatch: WakeEvent = field(default_factory=WakeEvent)
    notifications: WakeEvent = field(default_factory=WakeEvent)
    approvals: WakeEvent = field(default_factory=WakeEvent)
    schedules: WakeEvent = field(default_factory=WakeEvent)
    device_plans: WakeEvent = field(default_factory=WakeEvent)
    presence: WakeEvent = field(default_factory=WakeEvent)
    device_cleanup: WakeEvent = field(default_factory=WakeEvent)
    dropped_messages: WakeEvent = field(default_factory=WakeEvent)
    deliveries: WakeEvent = field(default_factory=WakeEvent)
    rule_timers: WakeEvent = field(default_factory=WakeEvent)
    feed_interest: WakeEvent = field(default_factory=WakeEvent)
    event_log: WakeEvent = field(default_factory=WakeEvent)
