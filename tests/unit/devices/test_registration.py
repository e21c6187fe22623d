"""Registering devices."""

from __future__ import annotations

import pytest

from domain.devices import registration as devices
from domain.devices.model import DeviceStatus, FirmwareProfile
from domain.devices.registration import DeviceRegistrationInput
from domain.kernel.caller import Role
from domain.kernel.errors import Conflict, NotFound, PermissionDenied
from domain.kernel.ids import ProjectId
from support.device_world import DeviceWorld


async def test_a_registered_device_is_pending_in_the_default_project_without_credentials(world: DeviceWorld) -> None:
    device = await world.devices.register(world.session(), DeviceRegistrationInput("Pump", "ESP32", "PUMP"))
    found = await world.devices.get(world.session(), device.device_id)
    assert found.device.status is DeviceStatus.PENDING
    assert not found.device.is_active
    assert found.project.name == "Default"
    assert world.link.admitted == {}
    assert [event.device_id for event in world.events_of_kind("device_registered")] == [device.device_id]


@pytest.mark.parametrize(
    ("board", "app", "profile"),
    [
        ("ESP32", "PUMP", FirmwareProfile.NATIVE),
        ("Sonoff Basic R2", "RELAY", FirmwareProfile.TASMOTA),
        ("ESP8266", "Tasmota", FirmwareProfile.TASMOTA),
        ("Shelly Plus 1", "RELAY", FirmwareProfile.SHELLY),
        ("ESP32", "ESPHome", FirmwareProfile.ESPHOME),
    ],
)
async def test_the_profile_is_found_from_board_and_application(
    world: DeviceWorld, board: str, app: str, profile: FirmwareProfile
) -> None:
    assert (await world.device(active=False, board_type=board, app_type=app)).profile is profile


async def test_a_viewer_registers_nothing(world: DeviceWorld) -> None:
    with pytest.raises(PermissionDenied):
        await world.devices.register(world.session(Role.VIEWER), DeviceRegistrationInput("Pump", "ESP32", "PUMP"))


async def test_an_unknown_project_is_refused(world: DeviceWorld) -> None:
    with pytest.raises(NotFound):
        await world.devices.register(
            world.session(), DeviceRegistrationInput("Pump", "ESP32", "PUMP", project_id=ProjectId("prj_nowhere"))
        )


PUMP = DeviceRegistrationInput("Pump", "ESP32", "PUMP")


async def test_an_account_has_a_limited_number_of_devices(world: DeviceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "MAX_DEVICES_PER_ACCOUNT", 1)
    first = await world.devices.register(world.session(), PUMP)
    with pytest.raises(Conflict) as refused:
        await world.devices.register(world.session(), PUMP)
    assert refused.value.code == "TOO_MANY_DEVICES"
    await world.devices.delete(world.session(), first.device_id)
    await world.devices.register(world.session(), PUMP)
