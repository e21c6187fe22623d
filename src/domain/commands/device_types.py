"""Device types: a name and the commands that all its devices share. Kept by Admins, because approvals can hang on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from domain.commands import policy
from domain.commands.definitions import Draft
from domain.commands.model import Definition
from domain.commands.ports import CommandsTx, ParamsChecker
from domain.devices.model import DeviceType
from domain.kernel.caller import Role, Session, require_role
from domain.kernel.clock import Clock
from domain.kernel.errors import Conflict, Invalid, NotFound
from domain.kernel.facts import EventKind, Fact
from domain.kernel.ids import CommandId, DeviceTypeId, IdSource, Prefix
from domain.kernel.unit_of_work import UnitOfWork

MAX_TYPES = 500


@dataclass(frozen=True, slots=True)
class TypeWithCommands:
    device_type: DeviceType
    commands: tuple[Definition, ...]


class DeviceTypeService:
    def __init__(
        self, *, uow: UnitOfWork[CommandsTx], clock: Clock, ids: IdSource, checker: ParamsChecker
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._checker = checker

    async def list(self, caller: Session) -> Sequence[TypeWithCommands]:
        async with self._uow.read() as tx:
            return [await _with_commands(tx, one) for one in await tx.device_types.list(caller.account_id)]

    async def get(self, caller: Session, device_type_id: DeviceTypeId) -> TypeWithCommands:
        async with self._uow.read() as tx:
            return await _with_commands(tx, await _type_of(tx, caller, device_type_id))

    async def create(self, caller: Session, name: str, drafts: Sequence[Draft]) -> TypeWithCommands:
        """Raises Invalid, Refused, Conflict `DEVICE_TYPE_EXISTS` or `TOO_MANY_DEVICE_TYPES`."""
        require_role(caller, Role.ADMIN)
        now_ms = self._clock.now_ms()
        device_type = DeviceType(DeviceTypeId(self._ids.new(Prefix.DEVICE_TYPE)), caller.account_id, name, now_ms)
        definitions = self._defined(device_type, drafts, now_ms, {})
        async with self._uow.write() as tx:
            await _check_name(tx, device_type)
            await tx.device_types.add(device_type)
            for definition in definitions:
                await tx.definitions.add(definition)
            await self._record(tx, caller, device_type, "device_type_created", now_ms)
        return TypeWithCommands(device_type, tuple(definitions))

    async def edit(
        self, caller: Session, device_type_id: DeviceTypeId, name: str | None, drafts: Sequence[Draft] | None
    ) -> TypeWithCommands:
        """`drafts` replace the whole list; a command that keeps its name keeps its id."""
        require_role(caller, Role.ADMIN)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            device_type = await _type_of(tx, caller, device_type_id, held=True)
            if name is not None and name != device_type.name:
                device_type = replace(device_type, name=name)
                await _check_name(tx, device_type)
                await tx.device_types.save(device_type)
            if drafts is not None:
                await self._replace(tx, device_type, drafts, now_ms)
            await self._record(tx, caller, device_type, "device_type_updated", now_ms)
            return await _with_commands(tx, device_type)

    async def delete(self, caller: Session, device_type_id: DeviceTypeId) -> None:
        """Raises Conflict `DEVICE_TYPE_IN_USE`: with the type its devices would lose commands and approvals unawares."""
        require_role(caller, Role.ADMIN)
        async with self._uow.write() as tx:
            device_type = await _type_of(tx, caller, device_type_id, held=True)
            used = await tx.device_types.in_use(device_type_id)
            if used:
                raise Conflict(
                    f"{used} devices are of this type. Give them another type first.", code="DEVICE_TYPE_IN_USE"
                )
            await tx.device_types.delete(device_type_id)
            await self._record(tx, caller, device_type, "device_type_deleted", self._clock.now_ms())

    async def _replace(
        self, tx: CommandsTx, device_type: DeviceType, drafts: Sequence[Draft], now_ms: int
    ) -> None:
        present = {one.name: one for one in await tx.definitions.of_type(device_type.device_type_id)}
        wanted = self._defined(device_type, drafts, now_ms, present)
        names = {definition.name for definition in wanted}
        for name, gone in present.items():
            if name not in names and gone.command_id is not None:
                await tx.definitions.delete(gone.command_id)
        for definition in wanted:
            if definition.name in present:
                await tx.definitions.save(definition)
            else:
                await tx.definitions.add(definition)

    def _defined(
        self, device_type: DeviceType, drafts: Sequence[Draft], now_ms: int, present: dict[str, Definition]
    ) -> Sequence[Definition]:
        if len(drafts) > policy.MAX_DEFINITIONS:
            raise Invalid.field("commands", f"takes at most {policy.MAX_DEFINITIONS} commands.")
        names = [draft.name for draft in drafts]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise Invalid.field("commands", f"names {min(twice)} twice; a name stands for one command.")
        definitions = []
        for draft in drafts:
            kept = present.get(draft.name)
            command_id = kept.command_id if kept else None
            definition = draft.defined(
                command_id or CommandId(self._ids.new(Prefix.COMMAND)),
                device_type.account_id,
                kept.created_ms if kept else now_ms,
                device_type_id=device_type.device_type_id,
            )
            policy.check_definition(definition, self._checker)
            definitions.append(definition)
        return definitions

    async def _record(
        self, tx: CommandsTx, caller: Session, device_type: DeviceType, kind: EventKind, now_ms: int
    ) -> None:
        await tx.record(
            Fact(
                account_id=caller.account_id,
                kind=kind,
                description=f"{kind.replace('_', ' ').capitalize()}: {device_type.name}",
                at_ms=now_ms,
                source=caller.label,
                data={"deviceTypeId": device_type.device_type_id},
                address=caller.address,
            )
        )


async def _type_of(tx: CommandsTx, caller: Session, device_type_id: DeviceTypeId, *, held: bool = False) -> DeviceType:
    find = tx.device_types.held if held else tx.device_types.get
    device_type = await find(caller.account_id, device_type_id)
    if device_type is None:
        raise NotFound.of("device type", device_type_id)
    return device_type


async def _with_commands(tx: CommandsTx, device_type: DeviceType) -> TypeWithCommands:
    return TypeWithCommands(device_type, tuple(await tx.definitions.of_type(device_type.device_type_id)))


async def _check_name(tx: CommandsTx, device_type: DeviceType) -> None:
    listed = await tx.device_types.list(device_type.account_id)
    others = [one for one in listed if one.device_type_id != device_type.device_type_id]
    if any(one.name == device_type.name for one in others):
        raise Conflict("A device type of this name exists. Take another name.", code="DEVICE_TYPE_EXISTS")
    if len(others) >= MAX_TYPES:
        raise Conflict("There are as many device types as there may be. Delete one first.", code="TOO_MANY_DEVICE_TYPES")
