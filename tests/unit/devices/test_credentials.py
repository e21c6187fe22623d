"""A device's credentials: issued, rotated, revoked, and shown to whom."""

from __future__ import annotations

import pytest

from domain.devices.firmware import PASSWORD_PLACEHOLDER, FirmwareConfigFormat
from domain.devices.model import DeviceStatus, FirmwareProfile
from domain.kernel.caller import Role
from domain.kernel.errors import Conflict, DomainError, NotFound, PermissionDenied, RateLimited
from domain.sign_in.policy import PASSWORD_CONFIRMATIONS
from support.device_world import DeviceWorld


async def test_credentials_make_a_device_active_and_let_it_in_with_that_password(world: DeviceWorld) -> None:
    device = await world.device(active=False)
    made = await world.credentials.generate(world.session(), device.device_id)
    assert (await world.stored(device.device_id)).status is DeviceStatus.ACTIVE
    assert world.link.admitted[device.device_id] == (device.device_no, made.password, "native")
    assert made.password in made.config_block
    assert made.password not in repr(made)
    assert world.readmitted == [device.device_id]


async def test_credentials_are_replaced_only_on_request(world: DeviceWorld) -> None:
    device = await world.device()
    with pytest.raises(Conflict) as refused:
        await world.credentials.generate(world.session(), device.device_id)
    assert refused.value.code == "CREDENTIALS_EXIST"
    before = world.link.admitted[device.device_id]
    await world.credentials.generate(world.session(), device.device_id, rotate=True)
    assert world.link.admitted[device.device_id] != before


async def test_rotating_a_disabled_device_does_not_let_it_in(world: DeviceWorld) -> None:
    device = await world.device()
    await world.devices.toggle_enabled(world.session(), device.device_id)
    await world.credentials.generate(world.session(), device.device_id, rotate=True)
    assert (await world.stored(device.device_id)).status is DeviceStatus.DISABLED
    assert device.device_id not in world.link.admitted


async def test_revoking_destroys_the_secret_shuts_out_and_says_offline(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    revoked = await world.credentials.revoke(world.session(), device.device_id)
    assert revoked.status is DeviceStatus.REVOKED
    assert world.link.expelled == [device.device_id]
    assert [event.data["reason"] for event in world.events_of_kind("device_offline")] == ["revoked"]
    async with world.uow.read() as tx:
        assert await tx.credentials.get_for_update(device.device_id) is None


async def test_the_account_password_shows_the_credentials_and_the_call_is_on_the_record(world: DeviceWorld) -> None:
    device = await world.device()
    shown = await world.credentials.reveal(world.session(), device.device_id, "secret")
    assert world.link.admitted[device.device_id][1] == shown.password
    (event,) = world.events_of_kind("credentials_revealed")
    assert event.source == world.session().label
    assert event.address == "192.0.2.1"


async def test_a_wrong_password_is_refused_and_on_the_record(world: DeviceWorld) -> None:
    device = await world.device()
    with pytest.raises(PermissionDenied) as refused:
        await world.credentials.reveal(world.session(), device.device_id, "wrong")
    assert refused.value.code == "PASSWORD_MISMATCH"
    assert [event.data["code"] for event in world.events_of_kind("credentials_reveal_refused")] == ["PASSWORD_MISMATCH"]
    assert world.events_of_kind("credentials_revealed") == []


async def test_a_device_without_credentials_has_none_to_show(world: DeviceWorld) -> None:
    device = await world.device(active=False)
    with pytest.raises(NotFound):
        await world.credentials.reveal(world.session(), device.device_id, "secret")
    assert len(world.events_of_kind("credentials_reveal_refused")) == 1


async def test_revoked_credentials_are_not_shown(world: DeviceWorld) -> None:
    device = await world.device()
    await world.credentials.revoke(world.session(), device.device_id)
    with pytest.raises(Conflict) as refused:
        await world.credentials.reveal(world.session(), device.device_id, "secret")
    assert refused.value.code == "CREDENTIALS_REVOKED"


async def test_a_viewer_is_denied_and_the_denial_is_logged(world: DeviceWorld) -> None:
    device = await world.device()
    with pytest.raises(PermissionDenied):
        await world.credentials.reveal(world.session(Role.VIEWER), device.device_id, "secret")
    assert [event.data["code"] for event in world.events_of_kind("credentials_reveal_refused")] == ["ROLE_REQUIRED"]


async def test_guessing_the_password_is_throttled_even_for_the_right_one_until_the_window_is_over(world: DeviceWorld) -> None:
    device = await world.device()
    for _ in range(PASSWORD_CONFIRMATIONS.max_failures):
        with pytest.raises(PermissionDenied):
            await world.credentials.reveal(world.session(), device.device_id, "wrong")
    with pytest.raises(RateLimited) as throttled:
        await world.credentials.reveal(world.session(), device.device_id, "secret")
    assert throttled.value.retry_after == PASSWORD_CONFIRMATIONS.window_ms // 1000
    world.clock.forward(PASSWORD_CONFIRMATIONS.window_ms)
    await world.credentials.reveal(world.session(), device.device_id, "secret")


async def test_no_event_contains_a_password(world: DeviceWorld) -> None:
    device = await world.device()
    shown = await world.credentials.reveal(world.session(), device.device_id, "secret")
    with pytest.raises(DomainError):
        await world.credentials.reveal(world.session(), device.device_id, "hunter2")
    reported = repr(world.uow.emitted_events)
    assert shown.password not in reported
    assert "hunter2" not in reported


@pytest.mark.parametrize("form", list(FirmwareConfigFormat))
async def test_the_config_without_a_reveal_has_a_placeholder_in_every_form(
    world: DeviceWorld, form: FirmwareConfigFormat
) -> None:
    device = await world.device()
    config = await world.credentials.get_config(world.session(), device.device_id, form)
    assert PASSWORD_PLACEHOLDER in config.config_block
    assert PASSWORD_PLACEHOLDER in config.note
    assert world.link.admitted[device.device_id][1] not in config.config_block


async def test_the_form_follows_the_firmware(world: DeviceWorld) -> None:
    tasmota = await world.device(board_type="Sonoff")
    pico = await world.device(board_type="Pico W")
    assert (await world.credentials.get_config(world.session(), tasmota.device_id)).config_block.startswith("Backlog ")
    assert "MQTT_HOST = " in (await world.credentials.get_config(world.session(), pico.device_id)).config_block


async def test_a_viewer_reads_the_firmware_without_the_secret_for_updates(world: DeviceWorld) -> None:
    device = await world.device(profile=FirmwareProfile.ESPHOME)
    texts = {}
    for role in (Role.MEMBER, Role.VIEWER):
        [file] = (await world.firmware.get_project(world.session(role), device.device_id)).files
        texts[role] = file.content
    assert f"ota of {device.device_id}" in texts[Role.MEMBER]
    assert "ota of" not in texts[Role.VIEWER]
