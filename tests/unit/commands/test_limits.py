"""Limits of definitions, types and devices: the error says what to do, and existing ones stay editable."""

from __future__ import annotations

import pytest

from domain.commands import definitions, device_types
from domain.commands.definitions import CommandDefinitionInput
from domain.devices import registration as devices
from domain.devices.registration import DeviceRegistrationInput
from domain.kernel.errors import Conflict
from support.device_world import DeviceWorld

PUMP = DeviceRegistrationInput("Pump", "ESP32", "PUMP")


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


async def test_an_account_has_a_limited_number_of_devices(world: DeviceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "MAX_DEVICES_PER_ACCOUNT", 1)
    first = await world.devices.register(world.session(), PUMP)
    with pytest.raises(Conflict) as refused:
        await world.devices.register(world.session(), PUMP)
    assert refused.value.code == "TOO_MANY_DEVICES"
    await world.devices.delete(world.session(), first.device_id)
    await world.devices.register(world.session(), PUMP)
