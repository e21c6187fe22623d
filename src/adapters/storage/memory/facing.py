"""What one command is decided by, gathered from the shelves."""

from __future__ import annotations

from adapters.storage.memory.commands import MemoryDefinitions, MemoryExecutions
from adapters.storage.memory.devices import MemoryDevices
from adapters.storage.memory.grants import MemoryGrants
from domain.commands.ports import Facing
from domain.grants.model import Subject
from domain.kernel.ids import AccountId, DeviceId


class MemoryFacing:
    def __init__(
        self, devices: MemoryDevices, definitions: MemoryDefinitions, executions: MemoryExecutions, grants: MemoryGrants
    ) -> None:
        self._devices = devices
        self._definitions = definitions
        self._executions = executions
        self._grants = grants

    async def of(self, account_id: AccountId, device_id: DeviceId, subject: Subject | None) -> Facing | None:
        device = await self._devices.get(account_id, device_id)
        if device is None:
            return None
        types = set() if device.device_type_id is None else {device.device_type_id}
        own = await self._definitions.of_all({device_id}, types)
        opened = (await self._executions.open_counts({device_id})).get(device_id, 0)
        held = [] if subject is None else await self._grants.of_subject_on(subject, device)
        return Facing(device, own, opened, held)
