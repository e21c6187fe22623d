from __future__ import annotations

from domain.devices.model import Device
from support.device_world import DeviceWorld

NOW = 1


def kinds(world: DeviceWorld) -> list[str]:
    return [
        f"{event.device_name} {event.data['reason']}"
        for event in world.uow.emitted_events
        if event.kind in ("device_online", "device_offline")
    ]


async def two(world: DeviceWorld) -> tuple[Device, Device]:
    return await world.device(name="Pump"), await world.device(name="Lamp")


async def test_each_change_within_a_batch_emits_one_event_in_order(world: DeviceWorld) -> None:
    pump, lamp = await two(world)
    async with world.presence_batch() as roll:
        world.presence.on_connected(roll, pump, NOW)
        world.presence.on_connected(roll, lamp, NOW)
        world.presence.on_status(roll, pump, True, NOW + 1)
        world.presence.on_disconnected(roll, pump, "revoked", NOW + 2)
        world.presence.on_connected(roll, pump, NOW + 3)
    assert kinds(world) == ["Pump connected", "Lamp connected", "Pump revoked", "Pump connected"]
    assert (await world.stored(pump.device_id)).is_online
    assert (await world.stored(pump.device_id)).last_seen_ms == NOW + 3


async def test_a_change_that_another_writer_has_emitted_is_not_emitted_again(world: DeviceWorld) -> None:
    pump, lamp = await two(world)
    async with world.presence_batch() as roll:
        world.presence.on_connected(roll, pump, NOW)
        world.presence.on_connected(roll, lamp, NOW)
    before = len(kinds(world))
    async with world.presence_batch() as roll:  # as both were when it looked
        world.presence.on_connected(roll, pump, NOW)
        world.presence.on_disconnected(roll, lamp, "revoked", NOW)
    assert kinds(world)[before:] == ["Lamp revoked"]


async def test_a_device_that_another_writer_marked_offline_is_online_again(world: DeviceWorld) -> None:
    pump, _ = await two(world)
    async with world.presence_batch() as roll:
        world.presence.on_connected(roll, pump, NOW)
    seen = await world.stored(pump.device_id)
    async with world.presence_batch() as roll:
        world.presence.on_disconnected(roll, seen, "revoked", NOW)
    async with world.presence_batch() as roll:
        world.presence.on_connected(roll, seen, NOW)  # looked up before it was counted out
    assert kinds(world) == ["Pump connected", "Pump revoked", "Pump connected"]
    assert (await world.stored(pump.device_id)).is_online
