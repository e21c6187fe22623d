"""Deleting a device that has millions of readings, without holding the database for a minute and without leaving a crumb.

The device is marked first, and with that it is gone for everybody. Its readings go in small steps, each its own transaction, so
that others write in between; the row, and with it all else the device had, goes last. A crash leaves the mark, and the mark is
taken up again at the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from domain.devices.model import Device, DeviceStatus
from domain.devices.ports import DevicesTx
from domain.kernel.unit_of_work import UnitOfWork

STEP_ROWS = 2_000
"""Some 10 ms of the database's time: a command that comes in meanwhile does not notice."""
STEPS_AT_ONCE = 25
"""What a caller waits for, about 50,000 messages; more is left to the worker."""


class ReadingEraser(Protocol):
    """The telemetry part's readings repository is one."""

    async def delete_some(self, device_no: int, limit: int) -> int: ...


class ErasureTx(DevicesTx, Protocol):
    @property
    def readings(self) -> ReadingEraser: ...


class Erasure:
    def __init__(
        self, *, uow: UnitOfWork[ErasureTx], bell: Callable[[], None], on_deleted: Callable[[Device], None]
    ) -> None:
        """`bell` wakes whoever calls `finish`. `on_deleted` hears of each device whose last row is gone."""
        self._uow = uow
        self._bell = bell
        self._on_deleted = on_deleted

    async def erase(self, device: Device, steps: int = STEPS_AT_ONCE) -> bool:
        """Erase a device that is marked. False when there is more than `steps` steps could take."""
        for _ in range(steps):
            async with self._uow.write() as tx:
                if await tx.readings.delete_some(device.device_no, STEP_ROWS) == 0:
                    await tx.devices.delete(device.device_id)
                    tx.after_commit(lambda: self._on_deleted(device))
                    return True
        self._bell()
        return False

    async def marked(self) -> Sequence[Device]:
        """Devices whose deletion is under way, of all accounts."""
        found: list[Device] = []
        async with self._uow.read() as tx:
            for account_id in await tx.accounts.all_ids():
                found += [one for one in await tx.devices.list(account_id) if one.status is DeviceStatus.DELETING]
        return found

    async def finish(self) -> int:
        """Erase what is marked, to the end. Returns how many devices."""
        devices = await self.marked()
        for device in devices:
            while not await self.erase(device):
                pass
        return len(devices)
