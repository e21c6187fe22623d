"""Definitions and types of commands: what overrides what, who may change them, and how many there may be."""

from __future__ import annotations

from typing import Any

import pytest

from domain.commands import definitions, device_types
from domain.commands.definitions import CommandDefinitionInput
from domain.commands.model import CommandKind
from domain.devices.model import Device
from domain.kernel.caller import Role
from domain.kernel.errors import Conflict, PermissionDenied, ValidationFailed
from support.device_world import DeviceWorld


async def define(world: DeviceWorld, device: Device, **fields: Any) -> None:
    await world.definitions.create(world.session(), device.device_id, CommandDefinitionInput(**{"label": "x"} | fields))


class TestDefinitions:
    async def test_device_definitions_override_type_definitions_and_built_ins(self, world: DeviceWorld) -> None:
        made = await world.types.create(
            world.session(),
            "Pump",
            [
                CommandDefinitionInput("ON", "Type"),
                CommandDefinitionInput("SPIN", "Type"),
                CommandDefinitionInput("DRAIN", "Type"),
            ],
        )
        device = await world.device(device_type_id=made.device_type.device_type_id)
        await define(world, device, name="SPIN", label="Device")
        found = {one.name: one.label for one in await world.definitions.list(world.session(), device.device_id)}
        assert found["ON"] == "Type"
        assert found["SPIN"] == "Device"
        assert found["DRAIN"] == "Type"
        assert list(found)[:5] == ["ON", "OFF", "TOGGLE", "STATUS", "GET_SCHEDULES"]

    async def test_command_names_are_unique_per_device(self, world: DeviceWorld) -> None:
        device = await world.device()
        await define(world, device, name="SPIN")
        with pytest.raises(Conflict) as refused:
            await define(world, device, name="SPIN")
        assert refused.value.code == "COMMAND_EXISTS"

    async def test_a_built_in_keeps_its_kind(self, world: DeviceWorld) -> None:
        device = await world.device()
        with pytest.raises(ValidationFailed):
            await define(world, device, name="ON", kind=CommandKind.QUERY)

    async def test_a_member_cannot_remove_an_approval(self, world: DeviceWorld) -> None:
        device = await world.device()
        admin, member = world.session(Role.ADMIN), world.session(Role.MEMBER)
        made = await world.definitions.create(admin, device.device_id, CommandDefinitionInput("ON", "On", requires_approval=True))
        assert made.command_id is not None
        with pytest.raises(PermissionDenied):
            await world.definitions.update(member, device.device_id, made.command_id, {"requires_approval": False})
        with pytest.raises(PermissionDenied):
            await world.definitions.delete(member, device.device_id, made.command_id)
        await world.definitions.update(admin, device.device_id, made.command_id, {"requires_approval": False})
        await world.definitions.delete(member, device.device_id, made.command_id)

    async def test_a_member_cannot_override_a_types_approval_on_the_device(self, world: DeviceWorld) -> None:
        made = await world.types.create(world.session(), "Pump", [CommandDefinitionInput("ON", "On", requires_approval=True)])
        device = await world.device(device_type_id=made.device_type.device_type_id)
        with pytest.raises(PermissionDenied):
            await world.definitions.create(world.session(Role.MEMBER), device.device_id, CommandDefinitionInput("ON", "Free"))

    async def test_commands_that_keep_their_name_keep_their_id(self, world: DeviceWorld) -> None:
        made = await world.types.create(
            world.session(), "Pump", [CommandDefinitionInput("A", "a"), CommandDefinitionInput("B", "b")]
        )
        after = await world.types.update(
            world.session(),
            made.device_type.device_type_id,
            None,
            [CommandDefinitionInput("B", "b2"), CommandDefinitionInput("C", "c")],
        )
        ids = {one.name: one.command_id for one in made.commands}
        assert {one.name: one.label for one in after.commands} == {"B": "b2", "C": "c"}
        assert next(one.command_id for one in after.commands if one.name == "B") == ids["B"]

    async def test_a_type_in_use_cannot_be_deleted(self, world: DeviceWorld) -> None:
        made = await world.types.create(world.session(), "Pump", [])
        await world.device(device_type_id=made.device_type.device_type_id)
        with pytest.raises(Conflict) as refused:
            await world.types.delete(world.session(), made.device_type.device_type_id)
        assert refused.value.code == "DEVICE_TYPE_IN_USE"

    async def test_a_key_without_a_grant_reads_no_definitions(self, world: DeviceWorld) -> None:
        device = await world.device()
        with pytest.raises(PermissionDenied):
            await world.definitions.list(await world.key(), device.device_id)


async def test_a_device_has_a_limited_number_of_own_commands(world: DeviceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "MAX_DEFINITIONS", 2)
    device, other = await world.device(), await world.device()
    for name in ("SPIN", "DRAIN"):
        await world.definitions.create(world.session(), device.device_id, CommandDefinitionInput(name, "x"))
    with pytest.raises(Conflict, match="at most 2 commands") as refused:
        await world.definitions.create(world.session(), device.device_id, CommandDefinitionInput("FLUSH", "x"))
    assert refused.value.code == "TOO_MANY_COMMANDS"
    await world.definitions.create(world.session(), other.device_id, CommandDefinitionInput("FLUSH", "x"))


async def test_an_account_has_a_limited_number_of_device_types_and_can_still_rename_them(
    world: DeviceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_types, "MAX_DEVICE_TYPES", 2)
    first = await world.types.create(world.session(), "Pump", [])
    await world.types.create(world.session(), "Gate", [])
    with pytest.raises(Conflict) as refused:
        await world.types.create(world.session(), "Lamp", [])
    assert refused.value.code == "TOO_MANY_DEVICE_TYPES"
    renamed = await world.types.update(world.session(), first.device_type.device_type_id, "Lamp", None)
    assert renamed.device_type.name == "Lamp"
    with pytest.raises(Conflict) as taken:
        await world.types.update(world.session(), first.device_type.device_type_id, "Gate", None)
    assert taken.value.code == "DEVICE_TYPE_EXISTS"
