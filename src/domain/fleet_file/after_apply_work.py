"""What applying a fleet file leaves to do after the commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.devices.model import Device
from domain.kernel.ids import DeviceId, DeviceTypeId, ProjectId


@dataclass(slots=True)
class FleetAfterApplyWork:
    """What services do about a device after their commit, kept until the whole apply is committed."""

    synced: list[DeviceId] = field(default_factory=list)
    erased: list[Device] = field(default_factory=list)
    deleted_projects: list[ProjectId] = field(default_factory=list)
    deleted_types: list[DeviceTypeId] = field(default_factory=list)
    """Both can be deleted when their last devices are erased."""

    async def sync(self, device_id: DeviceId) -> bool:
        self.synced.append(device_id)
        return True

    async def erase(self, device: Device) -> bool:
        self.erased.append(device)
        return True
