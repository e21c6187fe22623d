"""The loops of presence, clean-up and approvals act when it is time, and go on after a failure."""

from __future__ import annotations

import pytest

from app.workers.due import WakeEvent
from app.workers.periodic import ApprovalExpiryWorker, DeviceErasureAndCredentialSyncWorker, PresenceExpiryWorker
from domain.approvals.model import APPROVAL_TTL_MS
from domain.devices.presence import RESTART_GRACE_MS
from domain.kernel.caller import Role
from domain.kernel.errors import Unavailable
from support.schedule_world import ScheduleWorld
from support.waiting import eventually, loop_turns, running


@pytest.fixture
async def world() -> ScheduleWorld:
    return await ScheduleWorld().populate()


async def test_after_a_start_devices_that_do_not_return_are_announced_as_lost(world: ScheduleWorld) -> None:
    device = await world.device(online=True)
    world.link.listening.clear()
    wake = WakeEvent()
    async with running(PresenceExpiryWorker(presence=world.presence, clock=world.clock, wake_event=wake)):
        await eventually(lambda: world.presence.next_due_ms() is not None)
        world.clock.forward(RESTART_GRACE_MS)
        wake.set()
        await eventually(lambda: len(world.events_of_kind("device_offline")) == 1)
    assert not (await world.stored(device.device_id)).is_online


async def test_upkeep_tells_the_link_again_and_finishes_deletions(world: ScheduleWorld) -> None:
    device = await world.device()
    world.link.broken = Unavailable("the broker is away")
    await world.credentials.revoke(world.session(), device.device_id)
    wake = WakeEvent()
    async with running(
        DeviceErasureAndCredentialSyncWorker(
            erasure=world.erasure, credential_sync=world.admission, clock=world.clock, wake_event=wake
        )
    ):
        await loop_turns()
        world.link.broken = None
        await eventually(lambda: world.link.expelled == [device.device_id])


async def test_approval_requests_expire_at_their_deadline(world: ScheduleWorld) -> None:
    device, wake = await world.device(online=True), WakeEvent()
    await world.define(device, "FLUSH", requires_approval=True)
    await world.commands.submit(world.session(Role.ADMIN), device.device_id, "FLUSH")
    async with running(ApprovalExpiryWorker(approvals=world.approvals, clock=world.clock, wake_event=wake)):
        await loop_turns()
        assert world.events_of_kind("approval_decided") == []
        world.clock.forward(APPROVAL_TTL_MS)
        wake.set()
        await eventually(lambda: len(world.events_of_kind("approval_decided")) == 1)
