"""Look up a device for a caller, and save it: a device that is being deleted counts as absent.

A module of its own: every part above reads devices this way, and most of them nothing else of this part.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from domain.devices.model import Device, DeviceGroup, DeviceStatus
from domain.devices.ports import DevicesTx
from domain.kernel.errors import Conflict, NotFound, Unavailable
from domain.kernel.ids import AccountId, DeviceId
from domain.kernel.unit_of_work import UnitOfWork


def external_id_taken_error(external_id: str | None) -> Conflict:
    """None: one of several, and which is not known."""
    code = "EXTERNAL_ID_TAKEN"
    if external_id is None:
        return Conflict(
            "Another device of this account has one of these externalIds. GET /devices?externalId= finds it.", code=code
        )
    return Conflict(
        f"Another device of this account has the externalId {external_id!r}. GET /devices?externalId= finds it.", code=code
    )


async def get_device(tx: DevicesTx, account_id: AccountId, device_id: DeviceId, *, for_update: bool = False) -> Device:
    """Raises NotFound, also for a device of another account. `for_update`: lock the row until the transaction ends."""
    find = tx.devices.get_for_update if for_update else tx.devices.get
    device = await find(account_id, device_id)
    if device is None or device.status is DeviceStatus.DELETING:
        raise NotFound.for_resource("device", device_id)
    return device


async def get_device_to_cut_off(tx: DevicesTx, account_id: AccountId, device_id: DeviceId) -> Device:
    """`get_device`, to revoke, disable or delete it: a command that is being accepted is stored before, or refused after."""
    device = await tx.devices.get_to_cut_off(account_id, device_id)
    if device is None or device.status is DeviceStatus.DELETING:
        raise NotFound.for_resource("device", device_id)
    return device


def name_taken_error(group: DeviceGroup) -> Conflict:
    return Conflict(f"The project has a group {group.name!r} already. Choose another name.", code="GROUP_EXISTS")


async def ids_for_log(uow: UnitOfWork[DevicesTx], numbers: Collection[int]) -> list[str]:
    """The ids of the devices with these internal numbers, which tell a reader of the log nothing. A number stays where the device
    is gone or the database does not answer."""
    try:
        async with uow.read(one_statement=True) as tx:
            found = {device.device_no: str(device.device_id) for device in await tx.devices.list_by_numbers(numbers)}
    except Unavailable:
        found = {}
    return [found.get(number, str(number)) for number in sorted(numbers)]


def device_changed_error() -> Conflict:
    return Conflict("Somebody else has just changed the device. Read it again, then repeat your change.")


async def save_device(tx: DevicesTx, device: Device, *, deferred: bool = False) -> Device:
    """Save the device with its next version. `deferred`: as in `DeviceRepository.save_deferred`.

    Raises Conflict after a concurrent change."""
    save = tx.devices.save_deferred if deferred else tx.devices.save
    if not await save(device):
        raise device_changed_error()
    return replace(device, version=device.version + 1)
