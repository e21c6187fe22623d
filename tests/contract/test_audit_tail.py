"""The audit log as a stream: batches from a cursor, seals after their records, and what retention took is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from domain.audit import stream
from domain.audit.stream import AuditBatch, AuditCursor, AuditRecordsLostError, AuditStreamReader
from domain.events.hash_chain import EventChainHead
from domain.kernel.life import StoredLife
from support.sealing import seal
from support.storage import NOW, StoredAccount, an_event

HOUR = 3_600_000


async def append(world: StoredAccount, count: int, at_ms: int = NOW) -> None:
    async with world.uow.write() as tx:
        await tx.events.append_many([an_event(world, at_ms=at_ms) for _ in range(count)])


async def batches(world: StoredAccount, cursor: AuditCursor) -> Sequence[AuditBatch]:
    """All that is new; each batch begins with the cursor of the one before as a file has it."""
    found = []
    while (batch := await AuditStreamReader(uow=world.uow).read(world.account.account_id, cursor)).lines:
        found.append(batch)
        cursor = AuditCursor.from_json(json.loads(json.dumps(batch.cursor.to_json())))
        assert cursor == batch.cursor
    return found


def places(found: Sequence[AuditBatch]) -> list[tuple[int, int] | int]:
    """Writer and sequence of records, numbers of seals."""
    lines = [json.loads(line.text) for batch in found for line in batch.lines]
    return [
        (line["record"]["writer"], line["record"]["sequence"]) if "record" in line else line["seal"]["number"] for line in lines
    ]


async def test_every_record_and_seal_comes_once_and_in_batches(world: StoredAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_BATCH", 3)
    await append(world, 5)
    await seal(world.uow, NOW + HOUR)
    found = await batches(world, AuditCursor())
    assert [len(batch.lines) for batch in found] == [3, 3]
    assert places(found) == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), 1]
    await append(world, 1)
    assert places(await batches(world, found[-1].cursor)) == [(0, 6)]


async def test_writers_that_commit_side_by_side_are_all_read(world: StoredAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_BATCH", 4)
    cursor, seen = AuditCursor(), set()
    for _ in range(4):
        await asyncio.gather(*(append(world, 2) for _ in range(4)))
        for batch in await batches(world, cursor):
            assert not seen & set(places([batch]))
            seen |= set(places([batch]))
            cursor = batch.cursor
    async with world.uow.read() as tx:
        heads = await tx.audit_log.heads(world.account.account_id)
    assert seen == {(writer, 1 + number) for writer, head in heads.items() for number in range(head.sequence)}
    assert len(seen) == 32


async def test_what_retention_deleted_before_it_was_read_is_named(world: StoredAccount) -> None:
    await append(world, 1)
    cursor = (await batches(world, AuditCursor()))[-1].cursor
    await append(world, 2)
    await seal(world.uow, NOW + HOUR)
    async with world.uow.write() as tx:
        assert await tx.events.delete_older_than(NOW + HOUR + 1, 9) == 3
    await append(world, 1, NOW + 2 * HOUR)
    [batch] = await batches(world, cursor)
    assert batch.lost == ["2 to 3 of writer 0"]
    [from_the_beginning] = await batches(world, AuditCursor())
    assert from_the_beginning.lost == []


async def test_records_that_a_restored_database_does_not_have_are_named_and_nothing_goes_on(world: StoredAccount) -> None:
    """By the hash where the log has outgrown the cursor, and by the end of the chain where it has not."""
    await append(world, 2)
    sent = (await batches(world, AuditCursor()))[-1].cursor
    other = EventChainHead(2, "0" * 64, sent.heads[0].position)
    longer = EventChainHead(9, sent.heads[0].hash, sent.heads[0].position + 7)
    await append(world, 1)
    for head, lost in ((other, "up to 2 of writer 0"), (longer, "4 to 9 of writer 0")):
        with pytest.raises(AuditRecordsLostError, match=lost):
            await AuditStreamReader(uow=world.uow).read(world.account.account_id, replace(sent, heads={0: head}))
    assert places(await batches(world, sent)) == [(0, 3)]


async def test_another_life_that_has_all_that_was_sent_is_followed(world: StoredAccount) -> None:
    await append(world, 2)
    sent = (await batches(world, AuditCursor()))[-1].cursor
    async with world.uow.write(None) as tx:
        assert await tx.life.renew(sent.life, StoredLife("another"))
    await append(world, 1)
    [batch] = await batches(world, sent)
    assert (batch.cursor.life, len(batch.lines)) == ("another", 1)


async def test_in_another_life_a_record_that_is_gone_counts_as_lost(world: StoredAccount) -> None:
    await append(world, 1)
    sent = (await batches(world, AuditCursor()))[-1].cursor
    await seal(world.uow, NOW + HOUR)
    async with world.uow.write(None) as tx:
        assert await tx.events.delete_older_than(NOW + HOUR + 1, 9) == 1
    await append(world, 1, NOW + 2 * HOUR)
    assert len(await batches(world, sent)) == 1, "retention took it"
    async with world.uow.write(None) as tx:
        assert await tx.life.renew(sent.life, StoredLife("another"))
    with pytest.raises(AuditRecordsLostError):
        await AuditStreamReader(uow=world.uow).read(world.account.account_id, sent)
