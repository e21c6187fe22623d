"""The command context, read from the single repositories."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from domain.commands.model import CommandContext, Execution
from domain.devices.model import Device
from domain.grants.model import GrantSubject
from domain.kernel.ids import AccountId, DeviceId, ExecutionId
from support.memory_storage.commands import MemoryCommandDefinitionRepository, MemoryExecutionRepository
from support.memory_storage.devices import MemoryDeviceRepository
from support.memory_storage.grants import MemoryGrantRepository


class MemoryCommandContextRepository:
    def __init__(
        self,
        devices: MemoryDeviceRepository,
        definitions: MemoryCommandDefinitionRepository,
        executions: MemoryExecutionRepository,
        grants: MemoryGrantRepository,
    ) -> None:
        self._devices = devices
        self._definitions = definitions
        self._executions = executions
        self._grants = grants

    async def get(self, account_id: AccountId, device_id: DeviceId, subject: GrantSubject | None) -> CommandContext | None:
        device = await self._devices.get(account_id, device_id)
        if device is None:
            return None
        types = set() if device.device_type_id is None else {device.device_type_id}
        own = await self._definitions.list_by_devices_and_types({device_id}, types)
        opened = (await self._executions.count_open_by_device({device_id})).get(device_id, 0)
        held = [] if subject is None else await self._grants.list_by_subject_and_device(subject, device)
        return CommandContext.from_definitions(device, own, opened, held)

    async def get_many(
        self, account_id: AccountId, device_ids: Sequence[DeviceId], subject: GrantSubject | None
    ) -> Mapping[DeviceId, CommandContext]:
        each = [await self.get(account_id, device_id, subject) for device_id in device_ids]
        return {context.device.device_id: context for context in each if context is not None}

    async def list_reported(
        self, device_ids: Collection[DeviceId], execution_ids: Collection[ExecutionId]
    ) -> tuple[Sequence[Device], Sequence[Execution]]:
        return await self._devices.list_by_ids(device_ids), await self._executions.list_by_ids(execution_ids)
