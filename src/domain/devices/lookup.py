"""Look up a device for a caller: a device that is being deleted counts as absent."""

from __future__ import annotations

from domain.devices.model import Device, DeviceStatus
from domain.devices.ports import HasDevices
from domain.kernel.errors import NotFound
from domain.kernel.ids import AccountId, DeviceId


async def get_device(tx: HasDevices, account_id: AccountId, device_id: DeviceId, *, for_update: bool = False) -> Device:
    """Raises NotFound, also for a device of another account. `for_update`: lock the row until the transaction ends."""
    find = tx.devices.get_for_update if for_update else tx.devices.get
    device = await find(account_id, device_id)
    if device is None or device.status is DeviceStatus.DELETING:
        raise NotFound.for_resource("device", device_id)
    return device
