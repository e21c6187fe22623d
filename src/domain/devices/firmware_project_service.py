"""The complete firmware of a device, joined from its configuration and the sources: the service adds no password to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.devices.credential_issuer import usual_config_format
from domain.devices.firmware_config import BrokerEndpoint, FirmwareConfigFormat, FirmwareConfigValues
from domain.devices.firmware_project import FirmwareProject, FirmwareSourceReader, build_project
from domain.devices.load_and_save_device import get_device
from domain.devices.ports import HasDevices
from domain.kernel.caller import SessionCaller
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class FirmwareProjectService:
    uow: UnitOfWork[HasDevices] = field(repr=False)
    endpoint: BrokerEndpoint
    sources: FirmwareSourceReader

    async def get_project(
        self, caller: SessionCaller, device_id: DeviceId, config_format: FirmwareConfigFormat | None = None
    ) -> FirmwareProject:
        """Raises NotFound."""
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
        values = FirmwareConfigValues(device_id, device.name, self.endpoint)
        return build_project(config_format or usual_config_format(device), values, self.sources)
