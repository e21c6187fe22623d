"""A device as the outside may see it: one that is being deleted is gone already."""

from __future__ import annotations

from domain.devices.model import Device, DeviceStatus
from domain.devices.ports import DevicesTx
from domain.kernel.errors import NotFound
from domain.kernel.ids import AccountId, DeviceId


async def device_of(tx: DevicesTx, account_id: AccountId, device_id: DeviceId) -> Device:
    """Raises NotFound, also for a device of another account."""
    device = await tx.devices.get(account_id, device_id)
    if device is None or device.status is DeviceStatus.DELETING:
        raise NotFound.of("device", device_id)
    return device
