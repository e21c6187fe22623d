"""Device types: a name and the commands that its devices share. Only Admins edit them, because they can require approvals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from domain.commands.definitions import MAX_DEFINITIONS, CommandDefinitionInput, check_definition, check_lifts_no_pending
from domain.commands.model import CommandDefinition
from domain.commands.ports import CommandsTx, ParamsValidator
from domain.devices.model import DeviceType
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, JsonObject, event_of
from domain.kernel.errors import Conflict, NotFound, ValidationFailed
from domain.kernel.folding import fold
from domain.kernel.ids import CommandId, DeviceTypeId, IdAndSecretGenerator, IdPrefix
from domain.kernel.unit_of_work import UnitOfWork, give_way

MAX_DEVICE_TYPES = 500


@dataclass(frozen=True, slots=True)
class DeviceTypeWithCommands:
    device_type: DeviceType
    commands: tuple[CommandDefinition, ...]


@service
class DeviceTypeAdminService:
    uow: UnitOfWork[CommandsTx]
    clock: Clock
    ids: IdAndSecretGenerator
    validator: ParamsValidator

    async def list(self, caller: SessionCaller) -> Sequence[DeviceTypeWithCommands]:
        async with self.uow.read() as tx:
            return [await _load_with_commands(tx, one) for one in await tx.device_types.list(caller.account_id)]

    async def get(self, caller: SessionCaller, device_type_id: DeviceTypeId) -> DeviceTypeWithCommands:
        async with self.uow.read() as tx:
            return await _load_with_commands(tx, await _get_device_type(tx, caller, device_type_id))

    async def create(
        self, caller: SessionCaller, name: str, definition_inputs: Sequence[CommandDefinitionInput]
    ) -> DeviceTypeWithCommands:
        """Raises ValidationFailed, PermissionDenied, Conflict `DEVICE_TYPE_EXISTS` or `TOO_MANY_DEVICE_TYPES`."""
        require_role(caller, Role.ADMIN)
        now_ms = self.clock.now_ms()
        device_type = DeviceType(DeviceTypeId(self.ids.new_id(IdPrefix.DEVICE_TYPE)), caller.account_id, name, now_ms)
        await self.compile_schemas(one.params_schema for one in definition_inputs)
        definitions = self._build_definitions(device_type, definition_inputs, now_ms, {})
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            await _check_name(tx, device_type)
            await tx.device_types.add(device_type)
            for definition in definitions:
                await tx.definitions.add(definition)
            self._emit(tx, caller, device_type, "device_type_created", now_ms)
        return DeviceTypeWithCommands(device_type, tuple(definitions))

    async def update(
        self,
        caller: SessionCaller,
        device_type_id: DeviceTypeId,
        name: str | None,
        definition_inputs: Sequence[CommandDefinitionInput] | None,
    ) -> DeviceTypeWithCommands:
        """`definition_inputs` replace the whole list; a command that keeps its name keeps its id."""
        now_ms = self.clock.now_ms()
        require_role(caller, Role.ADMIN)
        await self.compile_schemas(one.params_schema for one in definition_inputs or ())
        async with self.uow.write(caller, Role.ADMIN, locks_account=name is not None) as tx:
            device_type = await _get_device_type(tx, caller, device_type_id, for_update=True)
            if name is not None and name != device_type.name:
                device_type = replace(device_type, name=name)
                await _check_name(tx, device_type)
                await tx.device_types.save(device_type)
            if definition_inputs is not None:
                await self._replace_definitions(tx, caller, device_type, definition_inputs, now_ms)
            self._emit(tx, caller, device_type, "device_type_updated", now_ms)
            return await _load_with_commands(tx, device_type)

    async def compile_schemas(self, schemas: Iterable[JsonObject | None]) -> None:
        """Before a transaction, which then finds them compiled. What is wrong with one is said when its command is checked."""
        for schema in schemas:
            if schema is not None:
                self.validator.validate_schema(schema)
                await give_way()

    async def delete(self, caller: SessionCaller, device_type_id: DeviceTypeId) -> None:
        """Raises Conflict `DEVICE_TYPE_IN_USE`: its devices would silently lose commands and approvals."""
        async with self.uow.write(caller, Role.ADMIN) as tx:
            device_type = await _get_device_type(tx, caller, device_type_id, for_update=True)
            used = await tx.device_types.count_devices(device_type_id)
            if used:
                raise Conflict(
                    f"Number of devices of this type: {used}. Give them another type first.", code="DEVICE_TYPE_IN_USE"
                )
            await tx.device_types.delete(device_type_id)
            self._emit(tx, caller, device_type, "device_type_deleted", self.clock.now_ms())

    async def _replace_definitions(
        self,
        tx: CommandsTx,
        caller: SessionCaller,
        device_type: DeviceType,
        definition_inputs: Sequence[CommandDefinitionInput],
        now_ms: int,
    ) -> None:
        existing = {one.name: one for one in await tx.definitions.list_by_device_type(device_type.device_type_id)}
        wanted = self._build_definitions(device_type, definition_inputs, now_ms, existing)
        await check_lifts_no_pending(
            tx, caller, existing.values(), wanted, lambda one: one.device_type_id == device_type.device_type_id
        )
        names = {definition.name for definition in wanted}
        for name, gone in existing.items():
            if name not in names and gone.command_id is not None:
                await tx.definitions.delete(gone.command_id)
        for definition in wanted:
            if definition.name in existing:
                await tx.definitions.save(definition)
            else:
                await tx.definitions.add(definition)

    def _build_definitions(
        self,
        device_type: DeviceType,
        definition_inputs: Sequence[CommandDefinitionInput],
        now_ms: int,
        existing: dict[str, CommandDefinition],
    ) -> Sequence[CommandDefinition]:
        if len(definition_inputs) > MAX_DEFINITIONS:
            raise ValidationFailed.for_field("commands", f"may have at most {MAX_DEFINITIONS} commands.")
        names = [definition_input.name for definition_input in definition_inputs]
        duplicates = {name for name in names if names.count(name) > 1}
        if duplicates:
            raise ValidationFailed.for_field("commands", f"contains {min(duplicates)} twice; command names must be unique.")
        definitions = []
        for definition_input in definition_inputs:
            previous = existing.get(definition_input.name)
            command_id = previous.command_id if previous else None
            definition = definition_input.to_definition(
                command_id or CommandId(self.ids.new_id(IdPrefix.COMMAND)),
                device_type.account_id,
                previous.created_ms if previous else now_ms,
                device_type_id=device_type.device_type_id,
            )
            check_definition(definition, self.validator)
            definitions.append(definition)
        return definitions

    def _emit(self, tx: CommandsTx, caller: SessionCaller, device_type: DeviceType, kind: EventKind, now_ms: int) -> None:
        text = f"{kind.replace('_', ' ').capitalize()}: {device_type.name}"
        tx.emit(event_of(caller, kind, text, now_ms, deviceTypeId=device_type.device_type_id))


async def _get_device_type(
    tx: CommandsTx, caller: SessionCaller, device_type_id: DeviceTypeId, *, for_update: bool = False
) -> DeviceType:
    find = tx.device_types.get_for_update if for_update else tx.device_types.get
    device_type = await find(caller.account_id, device_type_id)
    if device_type is None:
        raise NotFound.for_resource("device type", device_type_id)
    return device_type


async def _load_with_commands(tx: CommandsTx, device_type: DeviceType) -> DeviceTypeWithCommands:
    return DeviceTypeWithCommands(device_type, tuple(await tx.definitions.list_by_device_type(device_type.device_type_id)))


async def _check_name(tx: CommandsTx, device_type: DeviceType) -> None:
    """Call it in a transaction that locks the account. Names that differ only in case look like one."""
    listed = await tx.device_types.list(device_type.account_id)
    others = [one for one in listed if one.device_type_id != device_type.device_type_id]
    same = next((one for one in others if fold(one.name) == fold(device_type.name)), None)
    if same is not None:
        raise Conflict(f"The account has a device type {same.name!r} already. Choose another name.", code="DEVICE_TYPE_EXISTS")
    if len(others) >= MAX_DEVICE_TYPES:
        raise Conflict(
            "The account has reached the maximum number of device types. Delete one first.", code="TOO_MANY_DEVICE_TYPES"
        )
