"""Load what decides about the commands of devices: in one look-up for one device, in two for any number of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.commands.model import CommandContext, CommandDefinition, CommandKind
from domain.commands.ports import CommandsTx
from domain.devices.model import Device, DeviceStatus
from domain.grants.authorizer import grant_subject_of
from domain.grants.checks import GrantCheckInput
from domain.grants.model import GrantSubject
from domain.kernel.caller import ApiKeyCaller, SessionCaller
from domain.kernel.errors import NotFound
from domain.kernel.ids import AccountId, DeviceId


async def get_context_for_caller(tx: CommandsTx, caller: SessionCaller | ApiKeyCaller, device_id: DeviceId) -> CommandContext:
    """The device's context with the caller's grants. Raises NotFound."""
    return await get_context(tx, caller.account_id, device_id, grant_subject_of(caller))


async def get_context(tx: CommandsTx, account_id: AccountId, device_id: DeviceId, subject: GrantSubject | None) -> CommandContext:
    """The device's context with the grants of `subject`. Raises NotFound."""
    context = await tx.command_contexts.get(account_id, device_id, subject)
    if context is None or context.device.status is DeviceStatus.DELETING:
        raise NotFound.for_resource("device", device_id)
    return context


async def get_contexts_for_caller(
    tx: CommandsTx, caller: SessionCaller | ApiKeyCaller, device_ids: Sequence[DeviceId]
) -> Mapping[DeviceId, CommandContext]:
    """`get_context_for_caller` for many, without the devices for which it raises."""
    found = await tx.command_contexts.get_many(caller.account_id, device_ids, grant_subject_of(caller))
    return {each: context for each, context in found.items() if context.device.status is not DeviceStatus.DELETING}


async def load_contexts(tx: CommandsTx, devices: Sequence[Device]) -> Mapping[DeviceId, CommandContext]:
    """The contexts of these devices, without grants."""
    by_id = {device.device_id: device for device in devices}
    types = {device.device_type_id for device in devices if device.device_type_id is not None}
    by_owner: dict[str | None, dict[str, CommandDefinition]] = {}
    for definition in await tx.definitions.list_by_devices_and_types(by_id.keys(), types):
        by_owner.setdefault(definition.device_id or definition.device_type_id, {})[definition.name] = definition
    open_counts = await tx.executions.count_open_by_device(by_id.keys())
    return {
        device_id: CommandContext(
            device,
            device_definitions=by_owner.get(device_id, {}),
            type_definitions=by_owner.get(device.device_type_id, {}),
            open_count=open_counts.get(device_id, 0),
        )
        for device_id, device in by_id.items()
    }


def permission_request(
    device: Device, definition: CommandDefinition, channel: int, *, runs_later: bool = False
) -> GrantCheckInput:
    is_query = definition.kind is CommandKind.QUERY
    return GrantCheckInput.for_device(device, definition.name, channel, is_query=is_query, runs_later=runs_later)
