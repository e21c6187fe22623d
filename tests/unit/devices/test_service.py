"""Changing devices, and the states in which they can be."""

from __future__ import annotations

import pytest

from domain.devices.channels import Channel, ChannelInput, ChannelKind, without_own_names
from domain.devices.model import TRANSITIONS, DeviceLifecycleAction, DeviceStatus, FirmwareProfile
from domain.kernel.caller import Role
from domain.kernel.errors import Conflict, PermissionDenied
from support.device_world import DeviceWorld


async def test_toggle_disables_and_enables_and_refuses_a_pending_device(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    assert (await world.devices.toggle_enabled(world.session(), device.device_id)).status is DeviceStatus.DISABLED
    assert device.device_id not in world.link.admitted
    assert (await world.devices.toggle_enabled(world.session(), device.device_id)).status is DeviceStatus.ACTIVE
    assert device.device_id in world.link.admitted
    pending = await world.device(active=False)
    with pytest.raises(Conflict) as refused:
        await world.devices.toggle_enabled(world.session(), pending.device_id)
    assert refused.value.code == "DEVICE_STATE"


async def test_an_update_changes_only_what_it_names(world: DeviceWorld) -> None:
    device = await world.device()
    await world.devices.update(world.session(), device.device_id, {"location": "Cellar", "tags": ("a",)})
    await world.devices.update(world.session(), device.device_id, {"description": "Sump"})
    about = (await world.stored(device.device_id)).about
    assert (about.location, about.tags, about.description) == ("Cellar", ("a",), "Sump")


async def test_a_changed_profile_is_passed_to_the_link(world: DeviceWorld) -> None:
    device = await world.device()
    await world.devices.update(world.session(), device.device_id, {"profile": FirmwareProfile.TASMOTA})
    assert world.link.admitted[device.device_id][2] == "tasmota"


def test_a_name_that_a_channel_has_anyway_is_not_given_to_it() -> None:
    """Who renames one channel sends all of them: the others go on to follow their firmware."""
    known = [
        Channel(1, ChannelKind.RELAY, firmware_name="Pump", is_declared=True),
        Channel(2, ChannelKind.RELAY, given_name="Gate", firmware_name="R2", is_declared=True),
        Channel(3, ChannelKind.COVER, is_declared=True),
    ]
    sent = [ChannelInput(each.channel, each.kind, each.name) for each in known]
    assert [each.name for each in without_own_names(known, sent)] == [None, "Gate", None]


@pytest.mark.parametrize("status", [one for one in DeviceStatus if one is not DeviceStatus.DELETING])
def test_every_state_can_be_revoked_and_deleted(status: DeviceStatus) -> None:
    assert TRANSITIONS[(status, DeviceLifecycleAction.REVOKE)] is DeviceStatus.REVOKED
    assert TRANSITIONS[(status, DeviceLifecycleAction.DELETE)] is DeviceStatus.DELETING


def test_nothing_leads_back_out_of_a_deletion() -> None:
    assert not [key for key in TRANSITIONS if key[0] is DeviceStatus.DELETING]


async def test_a_member_cannot_take_a_device_off_its_type(world: DeviceWorld) -> None:
    made = await world.types.create(world.session(), "Pump", [])
    device = await world.device(device_type_id=made.device_type.device_type_id)
    with pytest.raises(PermissionDenied):
        await world.devices.update(world.session(Role.MEMBER), device.device_id, {"device_type_id": None})
