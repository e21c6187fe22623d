"""Sends queued commands to devices and expires commands after their deadline. Commands are sent from here only.

The worker wakes when a command is queued, when a device subscribes, and at the next deadline. Every 30 seconds it rescans the
queue, because no wake event announces a command that another instance queued or a change of the wall clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from time import monotonic

import structlog

from app.workers.due import MAX_SLEEP_S, DueLoop, seconds_until
from domain.commands.dispatch import CommandCrashRecovery, CommandDispatchService
from domain.kernel.dataclasses import service

log = structlog.get_logger("command_dispatch")


@service
class CommandDispatchWorker(DueLoop):
    name = "command_dispatch"

    dispatch: CommandDispatchService
    recovery: CommandCrashRecovery | None
    """None when it is done, and in a cluster, where a device that moves is recovered by itself."""

    _last_rescan_at: float = field(default_factory=monotonic, init=False)

    def on_devices_ready(self, devices: Sequence[tuple[int, int, int]]) -> None:
        """`devices`: (device number, Unix ms since when, `held_until_ms`) of devices that have subscribed to their commands."""
        for device_no, since_ms, held_until_ms in devices:
            self.dispatch.on_device_ready(device_no, since_ms, held_until_ms)

    def on_devices_subscribed(self, devices: Sequence[tuple[int, int]]) -> None:
        """`devices`: (device number, Unix ms) of devices that have subscribed to another topic."""
        for device_no, at_ms in devices:
            self.dispatch.on_subscribed(device_no, at_ms)

    async def sleep(self, sleep_s: float) -> None:
        await self.wake_event.wait(sleep_s)
        if monotonic() - self._last_rescan_at >= MAX_SLEEP_S:
            self._last_rescan_at = monotonic()
            self.dispatch.rescan_and_reset()

    async def run_once(self) -> float:
        if self.recovery is not None:
            await self.recovery.mark_possibly_sent()
            self.recovery = None
        await self._send_all()
        before = self.dispatch.expired_in_queue
        due_ms = await self.dispatch.next_expiry_ms()
        while due_ms is not None and due_ms <= self.dispatch.deadlines.now_ms():
            await self.dispatch.expire_batch()
            await self._send_all()  # what was queued meanwhile does not wait for all that has expired
            due_ms = await self.dispatch.next_expiry_ms()
        expired = self.dispatch.expired_in_queue - before
        if expired:
            log.warning("commands of connected devices expired before they could be sent", expired=expired)
        return seconds_until(due_ms, self.dispatch.deadlines.now_ms())

    async def _send_all(self) -> None:
        while await self.dispatch.send_queued():
            pass
