"""PostgreSQL: what a member has locked that is cut off without a word is free when another member ends its sessions."""

from __future__ import annotations

import pytest

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.probes import MAX_LENGTH
from domain.kernel.errors import Unavailable
from domain.partitions.model import Partition, PartitionLogAdvance
from support import postgres
from support.empty_database import empty_postgres

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")


@pytest.mark.parametrize("owner", ["a", MAX_LENGTH * "ü-name-" + "a"])
async def test_a_partition_that_a_cut_off_member_has_locked_can_be_claimed(owner: str) -> None:
    url = await empty_postgres()
    dead, alive = (SqlDatabase(url, instance=name) for name in (owner, "b"))
    beats = SqlDatabase(url, instance=owner, for_membership=True)
    await alive.start()
    try:
        async with alive.uow.write() as tx:
            await tx.partitions.create_missing(1)
            row = await tx.partitions.claim(Partition(0), owner, "log-1")
        assert row is not None
        with pytest.raises(Unavailable):
            async with dead.uow.write() as cut_off:
                await cut_off.partitions.advance(PartitionLogAdvance(0, 1, 0, 5))
                async with alive.uow.write() as tx:
                    assert await tx.members.end_sessions(["b", "c"]) == 0  # its own one stays
                    assert await tx.members.end_sessions([owner]) == 1  # and not those of its beats
                    taken = await tx.partitions.claim(row, "b", "log-1")
                await beats.check()
                await cut_off.partitions.advance(PartitionLogAdvance(0, 1, 5, 6))
        assert taken == Partition(0, epoch=2, owner="b", log_id="log-1")
    finally:
        for each in (dead, beats):
            await each.stop()
        await alive.stop()
