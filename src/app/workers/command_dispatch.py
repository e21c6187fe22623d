"""Sends queued commands to devices and expires commands after their deadline. Commands are sent from here only.

The worker wakes when a command is queued, when a device subscribes, and at the next deadline. Every 30 seconds it rescans the
queue, because no wake event announces a command that another instance queued or a change of the wall clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from app.workers.due_task_worker import MAX_SLEEP_S, DueTaskWorker, seconds_until
from app.workers.wake_event import WakeEvent
from domain.commands.crash_recovery import CommandCrashRecovery
from domain.commands.dispatch import CommandDispatchService


class CommandDispatchWorker(DueTaskWorker):
    name = "command_dispatch"

    def __init__(self, *, dispatch: CommandDispatchService, recovery: CommandCrashRecovery | None, wake_event: WakeEvent) -> None:
        """`recovery`: None in a cluster, where a device that moves is recovered by itself."""
        super().__init__(wake_event=wake_event)
        self._recovery = recovery
        self._dispatch = dispatch
        self._last_rescan_at = monotonic()
        self._is_recovered = recovery is None

    def on_devices_ready(self, devices: Sequence[tuple[int, int, int]]) -> None:
        """`devices`: (device number, Unix ms since when, `held_until_ms`) of devices that have subscribed to their commands."""
        for device_no, since_ms, held_until_ms in devices:
            self._dispatch.on_device_ready(device_no, since_ms, held_until_ms)

    def on_devices_subscribed(self, devices: Sequence[tuple[int, int]]) -> None:
        """`devices`: (device number, Unix ms) of devices that have subscribed to another topic."""
        for device_no, at_ms in devices:
            self._dispatch.on_subscribed(device_no, at_ms)

    async def sleep(self, sleep_s: float) -> None:
        await self.wake_event.wait(sleep_s)
        if monotonic() - self._last_rescan_at >= MAX_SLEEP_S:
            self._last_rescan_at = monotonic()
            self._dispatch.rescan_and_reset()

    async def run_once(self) -> float:
        if self._recovery is not None and not self._is_recovered:
            await self._recovery.mark_possibly_sent()
            self._is_recovered = True
        while await self._dispatch.send_queued():
            pass
        due_ms = await self._dispatch.next_expiry_ms()
        while due_ms is not None and due_ms <= self._dispatch.deadlines.now_ms():
            while await self._dispatch.expire_batch():
                pass
            due_ms = await self._dispatch.next_expiry_ms()
        return seconds_until(due_ms, self._dispatch.deadlines.now_ms())
