"""Add, change and remove a device's own commands.

Only Admins decide whether a command needs approval. A Member may define commands, but no edit of theirs may remove an approval:
not by clearing the flag, removing the definition, or defining the same name on the device. The transaction locks the device and
the commands of its type, so that a concurrent edit by an Admin cannot be bypassed either.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from domain.commands.model import BUILT_IN_BY_NAME, CommandDefinition, CommandKind, CommandWidget
from domain.commands.ports import CommandsTx, ParamsValidator
from domain.commands.submission import CommandSubmissionService
from domain.devices.lookup import get_device
from domain.devices.model import Device
from domain.grants.authorizer import Authorizer, get_readable_device
from domain.kernel.caller import Caller, Role, SessionCaller, require_role
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, JsonObject, event_of
from domain.kernel.errors import Conflict, FieldError, NotFound, ValidationFailed
from domain.kernel.ids import AccountId, CommandId, DeviceId, DeviceTypeId, IdAndSecretGenerator, IdPrefix
from domain.kernel.unit_of_work import UnitOfWork

NAME_PATTERN = re.compile(r"[A-Z0-9_]{1,64}")
MAX_DEFINITIONS = 100


@dataclass(frozen=True, slots=True)
class CommandDefinitionInput:
    """The fields of a command definition that people edit."""

    name: str
    label: str
    description: str | None = None
    kind: CommandKind = CommandKind.ACTION
    params_schema: JsonObject | None = None
    shape: CommandWidget = CommandWidget.BUTTON
    requires_approval: bool = False
    channels: tuple[int, ...] = ()

    def to_definition(
        self,
        command_id: CommandId,
        account_id: AccountId,
        now_ms: int,
        *,
        device_id: DeviceId | None = None,
        device_type_id: DeviceTypeId | None = None,
    ) -> CommandDefinition:
        return CommandDefinition(
            command_id=command_id,
            account_id=account_id,
            device_id=device_id,
            device_type_id=device_type_id,
            created_ms=now_ms,
            **{name: getattr(self, name) for name in EDITABLE_FIELDS},
        )


EDITABLE_FIELDS = frozenset(one.name for one in fields(CommandDefinitionInput))


@service
class CommandDefinitionService:
    uow: UnitOfWork[CommandsTx]
    clock: Clock
    ids: IdAndSecretGenerator
    authorizer: Authorizer
    validator: ParamsValidator
    commands: CommandSubmissionService

    async def list(self, caller: Caller, device_id: DeviceId) -> Sequence[CommandDefinition]:
        """The device's commands. An API key needs a grant that allows reading the device."""
        async with self.uow.read() as tx:
            device = await get_readable_device(tx, self.authorizer, caller, device_id, self.clock.now_ms())
            return await self.commands.effective_definitions(tx, device)

    async def get(self, caller: SessionCaller, device_id: DeviceId, command_id: CommandId) -> CommandDefinition:
        """A definition of the device itself. Raises NotFound."""
        async with self.uow.read() as tx:
            return await _get_own_definition(tx, await get_device(tx, caller.account_id, device_id), command_id)

    async def create(
        self, caller: SessionCaller, device_id: DeviceId, definition_input: CommandDefinitionInput
    ) -> CommandDefinition:
        """Raises ValidationFailed, NotFound, PermissionDenied, Conflict `COMMAND_EXISTS` or `TOO_MANY_COMMANDS`."""
        require_role(caller, Role.MEMBER)
        now_ms = self.clock.now_ms()
        command_id = CommandId(self.ids.new_id(IdPrefix.COMMAND))
        definition = definition_input.to_definition(command_id, caller.account_id, now_ms, device_id=device_id)
        check_definition(definition, self.validator)
        async with self.uow.write(caller, Role.MEMBER) as tx:
            device = await _lock_device(tx, caller, device_id)
            async with self._checked_edit(tx, caller, device, {definition.name}):
                await _check_name_free(tx, definition)
                await tx.definitions.add(definition)
            self._emit(tx, caller, definition, "command_defined", now_ms)
        return definition

    async def update(
        self, caller: SessionCaller, device_id: DeviceId, command_id: CommandId, changes: Mapping[str, Any]
    ) -> CommandDefinition:
        """`changes`: fields of `CommandDefinitionInput` by name."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER) as tx:
            device = await _lock_device(tx, caller, device_id)
            before = await _get_own_definition(tx, device, command_id)
            after = replace(before, **{name: value for name, value in changes.items() if name in EDITABLE_FIELDS})
            check_definition(after, self.validator)
            async with self._checked_edit(tx, caller, device, {before.name, after.name}):
                if after.name != before.name:
                    await _check_name_free(tx, after)
                await tx.definitions.save(after)
            self._emit(tx, caller, after, "command_updated", now_ms)
        return after

    async def delete(self, caller: SessionCaller, device_id: DeviceId, command_id: CommandId) -> None:
        """Removing an override restores the definition that it replaced."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER) as tx:
            device = await _lock_device(tx, caller, device_id)
            definition = await _get_own_definition(tx, device, command_id)
            async with self._checked_edit(tx, caller, device, {definition.name}):
                await tx.definitions.delete(command_id)
            self._emit(tx, caller, definition, "command_removed", now_ms)

    @asynccontextmanager
    async def _checked_edit(self, tx: CommandsTx, caller: SessionCaller, device: Device, names: Set[str]) -> AsyncIterator[None]:
        """Around an edit of the commands `names`, which an error rolls back. A Member edits no command that needs approval. A
        READ grant allows every QUERY, so only callers who may grant can define one. Raises PermissionDenied `ROLE_REQUIRED`,
        Conflict `REQUEST_PENDING`."""
        before = await self.commands.effective_definitions(tx, device)
        if any(one.name in names and one.requires_approval for one in before):
            require_role(caller, Role.ADMIN)
        yield
        after = await self.commands.effective_definitions(tx, device)
        if not _query_names(after) <= _query_names(before):
            require_role(caller, Role.ADMIN)
        await check_lifts_no_pending(tx, caller, before, after, lambda one: one.device_id == device.device_id)

    def _emit(self, tx: CommandsTx, caller: SessionCaller, definition: CommandDefinition, kind: EventKind, now_ms: int) -> None:
        text = f"{kind.replace('_', ' ').capitalize()}: {definition.name}"
        data = {"commandId": definition.command_id, "cmd": definition.name, "requiresApproval": definition.requires_approval}
        tx.emit(event_of(caller, kind, text, now_ms, definition.device_id, **data))


def check_definition(definition: CommandDefinition, validator: ParamsValidator) -> None:
    """Raises ValidationFailed for a bad name, an invalid schema, or a changed kind of a built-in.

    Otherwise a grant that allows only queries would allow ON once somebody defines it as a query."""
    faults: list[FieldError] = []
    if NAME_PATTERN.fullmatch(definition.name) is None:
        faults.append(FieldError("name", "must be 1 to 64 capital letters, digits and underscores, such as SET_LEVEL."))
    built_in = BUILT_IN_BY_NAME.get(definition.name)
    if built_in is not None and built_in.kind is not definition.kind:
        faults.append(FieldError("kind", f"{definition.name} is a built-in {built_in.kind}; an override must keep this kind."))
    if definition.params_schema is not None:
        faults += validator.validate_schema(definition.params_schema)
    if faults:
        raise ValidationFailed(f"Invalid command definition: {faults[0].field} {faults[0].message}", details=faults)


async def check_lifts_no_pending(
    tx: CommandsTx,
    caller: SessionCaller,
    before: Iterable[CommandDefinition],
    after: Iterable[CommandDefinition],
    affects: Callable[[Device], bool],
) -> None:
    """While a request waits for approval, an Admin cannot change its command so that it would need none: an Admin whose key asks
    could otherwise lift the approval instead of asking another person. An Owner may. `affects`: whether the change concerns a
    device. Raises Conflict `REQUEST_PENDING`."""
    needed, needs = _needing_approval(before), _needing_approval(after)
    if needed <= needs or caller.role is Role.OWNER:
        return
    pending = await tx.approvals.list_pending_commands(caller.account_id)
    lifted = [
        (device_id, cmd)
        for device_id, cmd, channel in pending
        if {(cmd, channel), (cmd, None)} & needed and not {(cmd, channel), (cmd, None)} & needs
    ]
    waiting = await tx.devices.list_by_ids({device_id for device_id, _ in lifted})
    if any(affects(device) for device in waiting):
        names = ", ".join(sorted({cmd for _, cmd in lifted}))
        raise Conflict(
            f"A request for {names} waits for approval, which this change would lift. Have the request decided first, or ask an "
            "Owner.",
            code="REQUEST_PENDING",
        )


def _needing_approval(definitions: Iterable[CommandDefinition]) -> set[tuple[str, int | None]]:
    """Names with channels; None: of all channels."""
    return {(one.name, channel) for one in definitions if one.requires_approval for channel in one.channels or (None,)}


def _query_names(definitions: Sequence[CommandDefinition]) -> frozenset[str]:
    return frozenset(one.name for one in definitions if one.kind is CommandKind.QUERY)


async def _lock_device(tx: CommandsTx, caller: SessionCaller, device_id: DeviceId) -> Device:
    """Lock everything that decides the device's effective definitions until the transaction ends. Raises NotFound."""
    device = await get_device(tx, caller.account_id, device_id, for_update=True)
    if device.device_type_id is not None:
        await tx.device_types.lock_for_share(device.device_type_id)
    return device


async def _get_own_definition(tx: CommandsTx, device: Device, command_id: CommandId) -> CommandDefinition:
    definition = await tx.definitions.get_for_update(device.account_id, command_id)
    if definition is None or definition.device_id != device.device_id:
        raise NotFound.for_resource("command of this device", command_id)
    return definition


async def _check_name_free(tx: CommandsTx, definition: CommandDefinition) -> None:
    if definition.device_id is None:
        return
    existing = await tx.definitions.list_by_device(definition.device_id)
    if any(one.name == definition.name for one in existing):
        raise Conflict(
            f"The device already has a command {definition.name}. Change that one, or choose another name.", code="COMMAND_EXISTS"
        )
    if len(existing) >= MAX_DEFINITIONS:
        raise Conflict(
            f"A device can have at most {MAX_DEFINITIONS} commands of its own. Remove one first.", code="TOO_MANY_COMMANDS"
        )
