"""The loops that drive dispatch, presence and upkeep: woken by a bell, never by polling, and alive after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from app.workers.command_dispatch import CommandDispatchWorker
from app.workers.due import WakeEvent
from app.workers.periodic import DeviceErasureAndCredentialSyncWorker, PresenceExpiryWorker
from domain.commands.dispatch import CommandCrashRecovery
from domain.commands.model import ExecutionStatus
from domain.devices.presence import RESTART_GRACE_MS
from domain.kernel.errors import Unavailable
from support.device_world import DeviceWorld
from support.waiting import TIMEOUT_S, loop_turns


class Loop(Protocol):
    async def run(self) -> None: ...


@asynccontextmanager
async def running(loop: Loop) -> AsyncIterator[None]:
    task = asyncio.create_task(loop.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,), timeout=TIMEOUT_S)
        assert task.cancelled()


async def until(true: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found = true()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.005)


async def test_a_queued_command_is_sent_when_the_wake_event_is_set(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    wake = WakeEvent()
    recovery = CommandCrashRecovery(uow=world.uow, clock=world.clock)
    async with running(CommandDispatchWorker(dispatch=world.dispatch, recovery=recovery, wake_event=wake)):
        await loop_turns()
        await world.commands.submit(world.session(), device.device_id, "ON")
        wake.set()
        await until(lambda: len(world.link.sent) == 1)


async def test_the_dispatcher_goes_on_after_the_link_failed(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    wake = WakeEvent()
    loop = CommandDispatchWorker(
        dispatch=world.dispatch, recovery=CommandCrashRecovery(uow=world.uow, clock=world.clock), wake_event=wake
    )
    world.link.broken = Unavailable("the broker is away")
    await world.commands.submit(world.session(), device.device_id, "ON")
    async with running(loop):
        await until(lambda: loop.failures > 0)
        world.link.broken = None
        await until(lambda: len(world.link.sent) == 1)


async def test_overdue_commands_end_and_a_device_that_listens_gets_its_own(world: DeviceWorld) -> None:
    device, late = await world.device(), await world.device()
    await world.commands.submit(world.session(), late.device_id, "ON", ttl_ms=1_000)
    world.clock.forward(1_000)
    await world.commands.submit(world.session(), device.device_id, "ON")
    wake = WakeEvent()
    loop = CommandDispatchWorker(
        dispatch=world.dispatch, recovery=CommandCrashRecovery(uow=world.uow, clock=world.clock), wake_event=wake
    )

    async def expired() -> bool:
        page = await world.control.list_executions(world.session(), late.device_id, limit=1)
        return page.executions[0].status is ExecutionStatus.EXPIRED

    async with running(loop):
        await until(expired)
        world.link.listening.add(device.device_id)
        loop.on_devices_ready([(device.device_no, world.clock.now_ms() + 1, 0)])
        wake.set()
        await until(lambda: len(world.link.sent) == 1)


async def test_after_a_start_devices_that_do_not_return_are_announced_as_lost(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    world.link.listening.clear()
    wake = WakeEvent()
    async with running(PresenceExpiryWorker(presence=world.presence, clock=world.clock, wake_event=wake)):
        await until(lambda: world.presence.next_due_ms() is not None)
        world.clock.forward(RESTART_GRACE_MS)
        wake.set()
        await until(lambda: len(world.events_of_kind("device_offline")) == 1)
    assert not (await world.stored(device.device_id)).is_online


async def test_upkeep_tells_the_link_again_and_finishes_deletions(world: DeviceWorld) -> None:
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
        await until(lambda: world.link.expelled == [device.device_id])
