"""The channels of devices, in every storage: what the firmware names, what people say, what is reported."""

from __future__ import annotations

from domain.devices.channels import Channel, ChannelInput, ChannelKind, ChannelState, DeclaredChannel
from support.storage import StoredAccount, new_id

PUMP = (1, DeclaredChannel(1, ChannelKind.RELAY, "Pump"))
LIGHT = (2, DeclaredChannel(2, ChannelKind.LEVEL, "Light", "light:0"))


async def channels(world: StoredAccount) -> dict[int, Channel]:
    async with world.uow.read() as tx:
        device = await tx.devices.find(world.device.device_id)
    assert device is not None
    assert [each.channel for each in device.channels] == sorted(each.channel for each in device.channels)
    return {each.channel: each for each in device.channels}


async def test_a_device_that_names_no_channels_has_one_relay(world: StoredAccount) -> None:
    assert await channels(world) == {}
    async with world.uow.write() as tx:
        await tx.devices.set_relay_many({world.device.device_id: True}, 7)
        device = await tx.devices.find(world.device.device_id)
    assert [(one.channel, one.kind, one.shown_state, one.reported_ms) for one in device.all_channels] == [
        (1, ChannelKind.RELAY, "ON", 7)
    ]


async def test_what_the_firmware_names_stays_when_it_names_it_no_more(world: StoredAccount) -> None:
    device_id = world.device.device_id
    async with world.uow.write() as tx:
        await tx.devices.declare_channels(device_id, [PUMP, LIGHT], is_complete=True)
    assert {number: (one.kind, one.name, one.component, one.is_declared) for number, one in (await channels(world)).items()} == {
        1: (ChannelKind.RELAY, "Pump", None, True),
        2: (ChannelKind.LEVEL, "Light", "light:0", True),
    }
    async with world.uow.write() as tx:
        await tx.devices.declare_channels(device_id, [PUMP], is_complete=True)
    assert {number: one.is_declared for number, one in (await channels(world)).items()} == {1: True, 2: False}
    async with world.uow.write() as tx:
        await tx.devices.declare_channels(device_id, [LIGHT], is_complete=False)
    assert {number: one.is_declared for number, one in (await channels(world)).items()} == {1: True, 2: True}


async def test_people_and_firmware_do_not_overwrite_each_other(world: StoredAccount) -> None:
    device_id = world.device.device_id
    async with world.uow.write() as tx:
        await tx.devices.declare_channels(device_id, [PUMP, LIGHT], is_complete=True)
        given = [ChannelInput(2, ChannelKind.COVER, "Lamp"), ChannelInput(3, ChannelKind.INPUT, "Bell")]
        await tx.devices.describe_channels(device_id, given)
    found = await channels(world)
    assert [(one.kind, one.name) for one in found.values()] == [
        (ChannelKind.RELAY, "Pump"),
        (ChannelKind.LEVEL, "Lamp"),  # the firmware knows its kind
        (ChannelKind.INPUT, "Bell"),
    ]
    async with world.uow.write() as tx:
        await tx.devices.declare_channels(device_id, [(2, DeclaredChannel(2, ChannelKind.LEVEL))], is_complete=True)
    assert [(one.name, one.firmware_name, one.is_declared) for one in (await channels(world)).values()] == [
        ("Pump", "Pump", False),
        ("Lamp", "Light", True),
        ("Bell", None, False),
    ]
    async with world.uow.write() as tx:
        await tx.devices.describe_channels(device_id, [])
    assert {number: one.name for number, one in (await channels(world)).items()} == {2: "Light"}, "undeclared ones are deleted"


async def test_states_are_stored_by_channel_and_forgotten_with_the_kind(world: StoredAccount) -> None:
    device_id = world.device.device_id
    lit = ChannelState(True, 40, {"color": "#ff8800"})
    async with world.uow.write() as tx:
        await tx.devices.declare_channels(device_id, [PUMP, LIGHT], is_complete=True)
        await tx.devices.set_channel_states(
            {(device_id, 2): lit, (device_id, 9): lit, (new_id("dev"), 1): lit, (device_id, 1): ChannelState(False)}, 8
        )
    found = await channels(world)
    assert (found[2].state, found[2].reported_ms) == (lit, 8)
    assert set(found) == {1, 2}, "a state makes no channel"
    async with world.uow.write() as tx:
        await tx.devices.declare_channels(device_id, [PUMP, LIGHT], is_complete=True)
    assert (await channels(world))[2].state == lit
    async with world.uow.write() as tx:
        await tx.devices.declare_channels(device_id, [(2, DeclaredChannel(2, ChannelKind.COVER))], is_complete=False)
    assert ((await channels(world))[2].state, (await channels(world))[2].reported_ms) == (ChannelState(), None)


async def test_a_number_that_gets_another_component_loses_the_name_of_the_former(world: StoredAccount) -> None:
    device_id = world.device.device_id
    async with world.uow.write() as tx:
        await tx.devices.declare_channels(device_id, [LIGHT], is_complete=True)
        await tx.devices.declare_channels(device_id, [(2, DeclaredChannel(2, ChannelKind.LEVEL))], is_complete=True)
    assert (await channels(world))[2].name == "Light"
    async with world.uow.write() as tx:
        other = (2, DeclaredChannel(2, ChannelKind.LEVEL, component="light:1"))
        await tx.devices.declare_channels(device_id, [other], is_complete=True)
    assert ((await channels(world))[2].name, (await channels(world))[2].component) == ("Level 2", "light:1")


async def test_channels_go_with_their_device(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.devices.declare_channels(world.device.device_id, [PUMP, LIGHT], is_complete=True)
        await tx.devices.delete(world.device.device_id, 9)
        assert await tx.devices.find(world.device.device_id) is None
        await tx.devices.set_channel_states({(world.device.device_id, 2): ChannelState(True)}, 10)
