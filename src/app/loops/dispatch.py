"""Commands on their way to devices, and those whose time is up: the one place from which commands are sent.

Woken by the bell (something was queued, a device listens) or by the next deadline; between these it sleeps. The slow look-again
covers what no bell of this process tells: a command that another instance queued, or a clock that was set.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from app.loops.doorbell import Doorbell
from app.loops.waking import LONGEST_SLEEP_S, WakingLoop, until
from domain.commands.dispatch import DispatchService
from domain.kernel.clock import Clock


class DispatchLoop(WakingLoop):
    name = "dispatch"

    def __init__(self, *, dispatch: DispatchService, clock: Clock, bell: Doorbell) -> None:
        self._dispatch = dispatch
        self._clock = clock
        self._looked_at = monotonic()
        super().__init__(bell)

    def ready(self, devices: Sequence[tuple[int, int]]) -> None:
        """(number, since when in Unix ms) of devices that now hear their commands."""
        for device_no, since_ms in devices:
            self._dispatch.on_device_ready(device_no, since_ms)

    def subscribed(self, devices: Sequence[tuple[int, int]]) -> None:
        """(number, when in Unix ms) of devices that have subscribed to something else."""
        for device_no, at_ms in devices:
            self._dispatch.on_subscribed(device_no, at_ms)

    async def _rest(self, sleep_s: float) -> None:
        await self._bell.wait(sleep_s)
        if monotonic() - self._looked_at >= LONGEST_SLEEP_S:
            self._looked_at = monotonic()
            self._dispatch.look_after_all()

    async def _work(self) -> float:
        """All there is to do now; returns for how long there is nothing, in seconds."""
        while await self._dispatch.send_queued():
            pass
        due_ms = await self._dispatch.next_expiry_ms()
        while due_ms is not None and due_ms <= self._clock.now_ms():
            while await self._dispatch.expire():
                pass
            due_ms = await self._dispatch.next_expiry_ms()
        return until(due_ms, self._clock.now_ms())
