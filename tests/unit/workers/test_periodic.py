"""The loops of presence, clean-up and approvals act when it is time, and go on after a failure."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from app.workers.due import DueWorker, WakeEvent, drain
from app.workers.periodic import DeviceCleanupWorker, expire_approvals, expire_presence
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
    async with running(DueWorker("presence", partial(expire_presence, world.presence, world.clock), wake)):
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
        DeviceCleanupWorker(erasure=world.erasure, credential_sync=world.admission, clock=world.clock, wake_event=wake)
    ):
        await loop_turns()
        world.link.broken = None
        await eventually(lambda: world.link.expelled == [device.device_id])


async def test_approval_requests_expire_at_their_deadline(world: ScheduleWorld) -> None:
    device, wake = await world.device(online=True), WakeEvent()
    await world.define(device, "FLUSH", requires_approval=True)
    await world.commands.submit(world.session(Role.ADMIN), device.device_id, "FLUSH")
    expire = drain(world.approvals.expire_due, world.approvals.next_expiry_ms, world.clock.now_ms)
    async with running(DueWorker("approvals", expire, wake)):
        await loop_turns()
        assert (world.events_of_kind("approval_decided"), world.approvals.pending) == ([], 1)
        world.clock.forward(APPROVAL_TTL_MS)
        wake.set()
        await eventually(lambda: len(world.events_of_kind("approval_decided")) == 1)


async def test_approvals_wait_while_the_clock_is_in_doubt(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.define(device, "BREW", requires_approval=True)
    await world.commands.submit(world.session(Role.ADMIN), device.device_id, "BREW")
    world.clock.step(minutes=2 * APPROVAL_TTL_MS / 60_000)
    expire = drain(world.approvals.expire_due, world.approvals.next_expiry_ms, world.clock.now_ms)
    watch: Any = SimpleNamespace(is_certain=False)
    assert await expire_approvals(watch, expire) > 0
    assert world.events_of_kind("approval_decided") == []
    watch.is_certain = True
    await expire_approvals(watch, expire)
    assert len(world.events_of_kind("approval_decided")) == 1
