"""The link learns who may connect, also after it failed and at a start."""

from __future__ import annotations

from domain.devices.model import DeviceStatus
from domain.kernel.errors import Unavailable
from support.device_world import DeviceWorld


async def test_a_revocation_is_repeated_after_the_link_failed(world: DeviceWorld) -> None:
    device = await world.device()
    world.link.broken = Unavailable("the broker is away")
    assert (await world.credentials.revoke(world.session(), device.device_id)).status is DeviceStatus.REVOKED
    assert len(world.admission.pending) == 1
    assert not await world.admission.retry_pending()
    world.link.broken = None
    assert await world.admission.retry_pending()
    assert world.link.expelled == [device.device_id]


async def test_a_late_sync_sends_the_present_state(world: DeviceWorld) -> None:
    device = await world.device()
    world.link.broken = OSError("connection refused")
    await world.credentials.revoke(world.session(), device.device_id)
    await world.credentials.generate(world.session(), device.device_id)
    world.link.broken = None
    assert await world.admission.retry_pending()
    assert device.device_id in world.link.admitted
    assert world.link.expelled == []


async def test_a_start_admits_every_active_device_and_no_other(world: DeviceWorld) -> None:
    active = await world.device()
    disabled = await world.device()
    await world.devices.toggle_enabled(world.session(), disabled.device_id)
    await world.device(active=False)
    world.link.admitted.clear()
    assert await world.make_admission().sync_all() == 1
    assert list(world.link.admitted) == [active.device_id]
