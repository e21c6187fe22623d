"""The life of the database: one row that is renewed by one and settled by one."""

from __future__ import annotations

from domain.kernel.life import LifeCause, StoredLife
from support.storage import StoredAccount


async def test_one_renews_it_and_one_settles_it(world: StoredAccount) -> None:
    async with world.uow.read() as tx:
        first = await tx.life.get()
    assert first.life
    assert (first.began_ms, first.pending) == (0, None)
    second = StoredLife("second", 2**42, LifeCause.FAILOVER)
    async with world.uow.write(None) as tx:
        assert not await tx.life.mark_recovered(first.life, 1)
        assert await tx.life.renew(first.life, second)
        assert not await tx.life.renew(first.life, StoredLife("third"))
    async with world.uow.read() as tx:
        assert await tx.life.get() == second
    async with world.uow.write(None) as tx:
        assert not await tx.life.mark_recovered(first.life, 1)
        assert await tx.life.mark_recovered("second", 2**43)
        assert not await tx.life.mark_recovered("second", 1)
    async with world.uow.read() as tx:
        assert await tx.life.get() == StoredLife("second", 2**43)


async def test_plan_revisions_continue_above_all_that_a_device_may_hold(world: StoredAccount) -> None:
    async with world.uow.write(None) as tx:
        await tx.devices.increment_plan_revisions([world.device.device_id])
        await tx.devices.skip_plan_revisions(1_000)
    async with world.uow.read() as tx:
        device = await tx.devices.find(world.device.device_id)
    assert device is not None
    assert device.sched_rev == 1_001
