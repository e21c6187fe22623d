"""A device as the outside may see it: one that is being deleted is gone already."""

from __future__ import annotations

from domain.devices.model import Device, DeviceStatus
from domain.devices.ports import HasDevices
from domain.kernel.errors import NotFound
from domain.kernel.ids import AccountId, DeviceId


async def get_device(tx: HasDevices, account_id: AccountId, device_id: DeviceId, *, held: bool = False) -> Device:
    """Raises NotFound, also for a device of another account. `held`: as it stays until the transaction ends."""
    find = tx.devices.get_for_update if held else tx.devices.get
    device = await find(account_id, device_id)
    if device is None or device.status is DeviceStatus.DELETING:
        raise NotFound.for_resource("device", device_id)
    return device
