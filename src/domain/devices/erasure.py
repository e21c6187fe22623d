"""Deleting a device that has millions of readings, without holding the database for a minute and without leaving a crumb.

The device is marked first, and with that it is gone for everybody. What it may have many of (executions, webhook deliveries) goes
in small steps, then the row and with it all else, in one transaction that digs a grave: the device's number, under which its
readings still lie. A worker empties graves in small steps and rests between them, so that whoever else writes waits for one step
at the most. It closes a grave only when nothing has come for a while, because a message that was on its way when the device was
deleted is stored like any other. A crash leaves the mark or the grave, and both are taken up again at the next start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.unit_of_work import Transaction, UnitOfWork

BATCH_ROWS = 2_000
"""Some 10 ms of the database's time: a command that comes in meanwhile does not notice."""
MAX_INLINE_BATCHES = 25
"""What a caller waits for, about 50,000 commands; more is left to the worker."""
TOMBSTONE_RETENTION_MS = 15 * MINUTE_MS
"""How long a grave stays open. The longest way of a message: a broker's queue while the database does not answer."""


Pause = Callable[[], Awaitable[None]]
"""Waited for between two steps."""


class ErasableRepository(Protocol):
    """The telemetry part's readings and roll-ups."""

    async def delete_batch(self, device_no: int, limit: int) -> int: ...


class DeviceErasureTx(Transaction, HasDevices, Protocol):
    @property
    def readings(self) -> ErasableRepository: ...

    @property
    def rollups(self) -> ErasableRepository: ...


class DeviceErasureService:
    def __init__(
        self, *, uow: UnitOfWork[DeviceErasureTx], clock: Clock, wake: Callable[[], None], on_deleted: Callable[[int], None]
    ) -> None:
        """`bell` wakes whoever calls `finish`. `on_deleted` hears the number of each device whose row is gone, and again when
        its grave is closed."""
        self._uow = uow
        self._clock = clock
        self._wake = wake
        self._on_deleted = on_deleted

    async def erase(self, device: Device, steps: int = MAX_INLINE_BATCHES) -> bool:
        """Erase a device that is marked, but for its readings. False when there is more than `steps` steps could take."""
        for _ in range(steps):
            async with self._uow.write() as tx:
                if await tx.devices.delete_batch(device.device_id, BATCH_ROWS) == 0:
                    await tx.devices.delete(device.device_id, self._clock.now_ms())
                    tx.after_commit(lambda: self._on_deleted(device.device_no))
                    tx.after_commit(self._wake)
                    return True
        self._wake()
        return False

    async def erase_pending(self, rest: Pause) -> int | None:
        """Erase what is marked, to the end, and empty every grave. Returns when there is something to do again (Unix ms)."""
        async with self._uow.read() as tx:
            marked = await tx.devices.list_deleting()
        for device in marked:
            while not await self.erase(device, steps=1):
                await rest()
        async with self._uow.read() as tx:
            graves = await tx.devices.list_tombstones()
        left = [deleted_ms for device_no, deleted_ms in graves if not await self._erase_readings(device_no, deleted_ms, rest)]
        return min(left) + TOMBSTONE_RETENTION_MS if left else None

    async def _erase_readings(self, device_no: int, deleted_ms: int, rest: Pause) -> bool:
        """Whether the grave could be closed."""
        while True:
            await rest()
            async with self._uow.write() as tx:
                gone = await tx.readings.delete_batch(device_no, BATCH_ROWS)
                if gone == 0:
                    gone = await tx.rollups.delete_batch(device_no, BATCH_ROWS)
                if gone:
                    continue
                await tx.devices.delete_metrics_and_values(device_no)
                if self._clock.now_ms() < deleted_ms + TOMBSTONE_RETENTION_MS:
                    return False
                await tx.devices.delete_tombstone(device_no)
                tx.after_commit(lambda: self._on_deleted(device_no))
                return True
