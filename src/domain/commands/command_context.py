"""What must be known of devices before commands are queued for them, looked up once for all of them.

Two looks for any number of devices: their definitions, and how many of their commands have not ended. From then on every
decision is made without I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from domain.commands import policy
from domain.commands.model import CommandDefinition, TriggeredBy
from domain.commands.ports import CommandContextRow, CommandsTx
from domain.devices.model import Device, DeviceStatus
from domain.grants.authorizer import grant_subject_of
from domain.grants.model import GrantSubject
from domain.kernel.caller import ApiKeyCaller, Session, SystemCaller
from domain.kernel.domain_events import Json
from domain.kernel.errors import Conflict, NotFound
from domain.kernel.ids import AccountId, DeviceId

DefinitionsByName = Mapping[str, CommandDefinition]
_NO_DEFINITIONS: DefinitionsByName = {}


@dataclass(slots=True)
class CommandContext:
    """`_own`: the definitions of each device and, by their own ids, of each type."""

    _definitions_by_owner: dict[str, dict[str, CommandDefinition]]
    _open_counts: dict[DeviceId, int]

    @classmethod
    async def load(cls, tx: CommandsTx, devices: Sequence[Device]) -> CommandContext:
        device_ids = {device.device_id for device in devices}
        types = {device.device_type_id for device in devices if device.device_type_id is not None}
        own: dict[str, dict[str, CommandDefinition]] = {}
        for definition in await tx.definitions.list_by_devices_and_types(device_ids, types):
            place = definition.device_id or definition.device_type_id or ""
            own.setdefault(place, {})[definition.name] = definition
        return cls(own, dict(await tx.executions.count_open_by_device(device_ids)))

    @classmethod
    def for_device(cls, facing: CommandContextRow) -> CommandContext:
        """For one device that was looked up already, with everything else."""
        own: dict[str, dict[str, CommandDefinition]] = {}
        for definition in facing.definitions:
            own.setdefault(definition.device_id or definition.device_type_id or "", {})[definition.name] = definition
        return cls(own, {facing.device.device_id: facing.open_count})

    def get_definition(self, device: Device, cmd: str) -> CommandDefinition:
        """What counts for the device under this name. Raises Invalid `UNKNOWN_COMMAND`."""
        of_device, of_type = self._definitions_for(device)
        found = of_device.get(cmd) or of_type.get(cmd) or policy.BUILT_IN_BY_NAME.get(cmd)
        return found or policy.require_definition(policy.effective_definitions(of_type.values(), of_device.values()), cmd)

    def reserve_slot(self, device: Device) -> None:
        """One command more of the device is open. Raises Conflict `TOO_MANY_QUEUED`."""
        present = self._open_counts.get(device.device_id, 0)
        if present >= policy.MAX_OPEN_EXECUTIONS:
            raise Conflict(
                f"{policy.MAX_OPEN_EXECUTIONS} commands of this device have not ended yet. Wait for them, or give a shorter ttlSeconds.",  # noqa: E501
                code="TOO_MANY_QUEUED",
            )
        self._open_counts[device.device_id] = present + 1

    def release_slot(self, device: Device) -> None:
        """A place that was taken is not needed after all."""
        self._open_counts[device.device_id] -= 1

    def _definitions_for(self, device: Device) -> tuple[DefinitionsByName, DefinitionsByName]:
        return self._definitions_by_owner.get(device.device_id, _NO_DEFINITIONS), self._definitions_by_owner.get(
            device.device_type_id or "", _NO_DEFINITIONS
        )


async def get_context_row_for_caller(tx: CommandsTx, caller: Session | ApiKeyCaller, device_id: DeviceId) -> CommandContextRow:
    """All that a command of this caller for the device is decided by. Raises NotFound."""
    return await get_context_row(tx, caller.account_id, device_id, grant_subject_of(caller))


async def get_context_row(
    tx: CommandsTx, account_id: AccountId, device_id: DeviceId, subject: GrantSubject | None
) -> CommandContextRow:
    """The same with the grants of this subject. Raises NotFound."""
    facing = await tx.command_contexts.get(account_id, device_id, subject)
    if facing is None or facing.device.status is DeviceStatus.DELETING:
        raise NotFound.for_resource("device", device_id)
    return facing


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command for a device, as it was asked for."""

    device: Device
    cmd: str
    params: Json
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class AutomationCommand:
    """A command that runs with nobody present."""

    caller: SystemCaller
    request: CommandRequest
    source: TriggeredBy
