"""Who is online: the grace, restarts, and the changes within one batch."""

from __future__ import annotations

import pytest

from domain.devices.model import Device
from domain.devices.presence import OFFLINE_GRACE_MS, RESTART_GRACE_MS, PresenceService
from domain.kernel.ids import DeviceId
from support.device_world import DeviceWorld


async def leave(world: DeviceWorld, device: Device, reason: str = "lost") -> None:
    world.link.listening.discard(device.device_id)
    async with world.presence_batch() as roll:
        world.presence.on_disconnected(roll, await world.stored(device.device_id), reason, world.clock.now_ms())


async def says(world: DeviceWorld, device_id: DeviceId, online: bool) -> None:
    async with world.presence_batch() as roll:
        world.presence.on_status(roll, await world.stored(device_id), online, world.clock.now_ms())


def changes(world: DeviceWorld) -> list[str]:
    return [
        f"{event.kind.removeprefix('device_')}:{event.data['reason']}"
        for event in world.uow.emitted_events
        if event.kind in ("device_online", "device_offline")
    ]


async def test_connecting_twice_is_one_change(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    await world.connect(device.device_id)
    await says(world, device.device_id, True)
    assert changes(world) == ["online:connected"]
    assert (await world.stored(device.device_id)).last_seen_ms == world.clock.now_ms()


async def test_a_device_that_stays_away_is_offline_after_the_grace(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    await leave(world, device, "disconnected")
    assert world.presence.next_due_ms() == world.clock.now_ms() + OFFLINE_GRACE_MS
    world.clock.forward(OFFLINE_GRACE_MS - 1)
    assert await world.presence.expire_due() == 0
    world.clock.forward(1)
    assert await world.presence.expire_due() == 1
    assert changes(world) == ["online:connected", "offline:disconnected"]
    assert world.presence.next_due_ms() is None


@pytest.mark.parametrize("minutes", [-60, 60])
async def test_a_step_of_the_clock_does_not_change_the_grace(world: DeviceWorld, minutes: int) -> None:
    await leave(world, await world.device(online=True))
    world.clock.step(minutes=minutes)
    world.clock.forward(OFFLINE_GRACE_MS - 1)
    assert await world.presence.expire_due() == 0
    world.clock.forward(1)
    assert await world.presence.expire_due() == 1
    assert changes(world) == ["online:connected", "offline:lost"]


async def test_a_reconnect_within_the_grace_is_no_flap(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    await leave(world, device)
    world.clock.forward(OFFLINE_GRACE_MS // 2)
    await world.connect(device.device_id)
    world.clock.forward(OFFLINE_GRACE_MS)
    assert await world.presence.expire_due() == 0
    assert changes(world) == ["online:connected"]


async def test_the_late_will_of_a_replaced_connection_is_no_flap(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    await says(world, device.device_id, False)
    world.clock.forward(OFFLINE_GRACE_MS)
    await world.presence.expire_due()
    assert changes(world) == ["online:connected"]


async def test_will_and_disconnect_are_one_change_with_the_links_reason(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    await says(world, device.device_id, False)
    await leave(world, device, "lost")
    world.clock.forward(OFFLINE_GRACE_MS)
    await world.presence.expire_due()
    await says(world, device.device_id, False)
    world.clock.forward(OFFLINE_GRACE_MS)
    await world.presence.expire_due()
    assert changes(world) == ["online:connected", "offline:lost"]


async def test_after_a_restart_who_does_not_return_is_lost_and_who_returns_was_never_gone(world: DeviceWorld) -> None:
    stays = await world.device(online=True)
    returns = await world.device(online=True)
    world.link.listening.clear()
    world.presence = PresenceService(uow=world.uow, clock=world.clock, link=world.link, wake=world.wake_event)
    assert await world.presence.recover() == 2
    await world.connect(returns.device_id)
    world.clock.forward(RESTART_GRACE_MS)
    while await world.presence.expire_due():
        pass
    assert changes(world) == ["online:connected", "online:connected", "offline:lost"]
    assert not (await world.stored(stays.device_id)).is_online
    assert (await world.stored(returns.device_id)).is_online


async def test_a_stopped_broker_says_nothing_about_devices_for_a_while(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    await leave(world, device, "stopped")
    world.clock.forward(OFFLINE_GRACE_MS)
    assert await world.presence.expire_due() == 0
    world.clock.forward(RESTART_GRACE_MS)
    assert await world.presence.expire_due() == 1
    assert changes(world)[-1] == "offline:lost"


async def test_a_message_on_its_way_does_not_bring_a_revoked_device_back(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    await world.credentials.revoke(world.session(), device.device_id)
    await says(world, device.device_id, True)
    await leave(world, device, "revoked")
    assert changes(world) == ["online:connected", "offline:revoked"]


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
