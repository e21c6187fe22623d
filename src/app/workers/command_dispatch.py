"""Commands on their way to devices, and those whose time is up: the one place from which commands are sent.

Woken by the bell (something was queued, a device listens) or by the next deadline; between these it sleeps. The slow look-again
covers what no bell of this process tells: a command that another instance queued, or a clock that was set.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from app.workers.base_worker import MAX_SLEEP_S, DueWorker, seconds_until
from app.workers.wake_event import WakeEvent
from domain.commands.dispatch import CommandDispatchService
from domain.kernel.clock import Clock


class CommandDispatchWorker(DueWorker):
    name = "dispatch"

    def __init__(self, *, dispatch: CommandDispatchService, clock: Clock, bell: WakeEvent) -> None:
        self._dispatch = dispatch
        self._clock = clock
        self._last_rescan_at = monotonic()
        super().__init__(bell)

    def on_devices_ready(self, devices: Sequence[tuple[int, int]]) -> None:
        """(number, since when in Unix ms) of devices that now hear their commands."""
        for device_no, since_ms in devices:
            self._dispatch.on_device_ready(device_no, since_ms)

    def on_devices_subscribed(self, devices: Sequence[tuple[int, int]]) -> None:
        """(number, when in Unix ms) of devices that have subscribed to something else."""
        for device_no, at_ms in devices:
            self._dispatch.on_subscribed(device_no, at_ms)

    async def sleep(self, sleep_s: float) -> None:
        await self._wake_event.wait(sleep_s)
        if monotonic() - self._last_rescan_at >= MAX_SLEEP_S:
            self._last_rescan_at = monotonic()
            self._dispatch.rescan_and_reset()

    async def run_once(self) -> float:
        """All there is to do now; returns for how long there is nothing, in seconds."""
        while await self._dispatch.send_queued():
            pass
        due_ms = await self._dispatch.next_expiry_ms()
        while due_ms is not None and due_ms <= self._clock.now_ms():
            while await self._dispatch.expire_batch():
                pass
            due_ms = await self._dispatch.next_expiry_ms()
        return seconds_until(due_ms, self._clock.now_ms())
