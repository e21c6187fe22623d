"""Delete a device with millions of readings without blocking the database and without leaving rows behind.

The device is first marked DELETING, which hides it from everyone. Its executions and webhook deliveries, which may be many, are
deleted in batches. Then one transaction deletes the row with its dependants and inserts a tombstone: the device's number, under
which its readings are still stored. A worker purges the readings in batches and pauses between them, so that other writers wait
for one batch at most. It deletes the tombstone only after a retention time, because a message that was in flight when the device
was deleted is stored like any other. After a crash, the mark or the tombstone lets the next start continue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from domain.devices.model import Device
from domain.devices.ports import BatchEnd, DevicesTx
from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork

BATCH_ROWS = 2_000
"""About 10 ms of database time, which does not delay commands noticeably."""
MAX_INLINE_BATCHES = 25
"""The caller waits for about 50,000 rows; the worker deletes the rest."""
TOMBSTONE_RETENTION_MS = 15 * MINUTE_MS
"""Longer than any message is in flight: a broker queues messages while the database is unavailable."""


Pause = Callable[[], Awaitable[None]]
"""Awaited between two batches."""


@service
class DeviceErasureService:
    """`wake` wakes the worker that calls `erase_pending`. `on_deleted` gets the number of each device when its row is
    deleted, and again when its tombstone is deleted. `erase_elsewhere` deletes what another store has of a device number;
    if it raises Unavailable, the tombstone stays."""

    uow: UnitOfWork[DevicesTx]
    clock: Clock
    wake: Callable[[], None]
    on_deleted: Callable[[int], None]
    erase_elsewhere: Callable[[int], Awaitable[None]] | None = None

    async def erase(self, device: Device, max_batches: int = MAX_INLINE_BATCHES) -> bool:
        """Delete everything of a DELETING device except its readings. False when more than `max_batches` batches are needed."""
        for _ in range(max_batches):
            async with self.uow.write(caller=None) as tx:
                if await tx.devices.delete_batch(device.device_id, BATCH_ROWS) == 0:
                    await tx.devices.delete(device.device_id, self.clock.now_ms())
                    tx.after_commit(lambda: self.on_deleted(device.device_no))
                    tx.after_commit(self.wake)
                    return True
        self.wake()
        return False

    async def erase_pending(self, pause: Pause) -> int | None:
        """Delete all DELETING devices and purge the readings of every tombstone. Returns when to call again (Unix ms).

        Raises Unavailable, when the rest is done, if another store did not delete what it has of a device."""
        async with self.uow.read() as tx:
            deleting = await tx.devices.list_deleting()
        for device in deleting:
            while not await self.erase(device, max_batches=1):
                await pause()
        async with self.uow.read() as tx:
            tombstones = await tx.devices.list_tombstones()
        remaining, refused = [], None
        for device_no, deleted_ms in tombstones:
            await self._erase_rows(device_no, pause)
            try:
                if self.erase_elsewhere is not None:
                    await self.erase_elsewhere(device_no)
            except Unavailable as error:
                refused = error
                continue
            if not await self._erase_tombstone(device_no, deleted_ms):
                remaining.append(deleted_ms)
        if refused is not None:
            raise refused
        return min(remaining) + TOMBSTONE_RETENTION_MS if remaining else None

    async def _erase_rows(self, device_no: int, pause: Pause) -> None:
        deleted, after = 1, None
        while deleted:
            await pause()
            async with self.uow.write(caller=None) as tx:
                deleted, after = await _delete_batch(tx, device_no, after)

    async def _erase_tombstone(self, device_no: int, deleted_ms: int) -> bool:
        """False if it is too early, or if rows have come meanwhile."""
        async with self.uow.write(caller=None) as tx:
            deleted, _ = await _delete_batch(tx, device_no, None)
            if deleted:
                return False
            await tx.devices.delete_reported_data(device_no)
            if self.clock.now_ms() < deleted_ms + TOMBSTONE_RETENTION_MS:
                return False
            await tx.devices.delete_tombstone(device_no)
            tx.after_commit(lambda: self.on_deleted(device_no))
            return True


async def _delete_batch(tx: DevicesTx, device_no: int, after: BatchEnd) -> tuple[int, BatchEnd]:
    """Returns how many rows, 0 when none are left, and the `after` of the next batch."""
    deleted, after = await tx.readings.delete_next_batch(device_no, BATCH_ROWS, after)
    for repository in (tx.due_rollups, tx.rollups, tx.dead_letters):
        if not deleted:
            deleted = await repository.delete_batch(device_no, BATCH_ROWS)
    return deleted, after
