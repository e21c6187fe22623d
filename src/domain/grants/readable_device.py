"""A device, for a caller who may read it."""

from __future__ import annotations

from typing import Protocol

from domain.devices.lookup import get_device
from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.grants.authorizer import Authorizer
from domain.grants.grant_checks_and_denials import READ_REQUEST
from domain.grants.ports import AuthorizationTx
from domain.kernel.caller import Caller
from domain.kernel.ids import DeviceId


class ReadableDeviceTx(AuthorizationTx, HasDevices, Protocol): ...


async def get_readable_device(
    tx: ReadableDeviceTx, authorizer: Authorizer, caller: Caller, device_id: DeviceId, now_ms: int
) -> Device:
    """Raises NotFound, PermissionDenied."""
    device = await get_device(tx, caller.account_id, device_id)
    await authorizer.authorize(tx, caller, device, READ_REQUEST, now_ms)
    return device
