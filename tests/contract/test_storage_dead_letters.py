"""Dead letters: messages that the database refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from domain.ingest.dead_letters import IngestDeadLetterService
from domain.ingest.ports import IngestDeadLetter, IngestDeadLetterState
from support.manual_clock import ManualClock
from support.storage import NOW, StoredAccount


def a_letter(world: StoredAccount, **changes: Any) -> IngestDeadLetter:
    fields: dict[str, Any] = {"kind": "telemetry", "payload": b'{"t": 1}\x00\xff', "arrived_ms": NOW, "reason": "refused ü"}
    return IngestDeadLetter(
        letter_id=0, device_no=world.device.device_no, device_id=world.device.device_id, created_ms=NOW, **(fields | changes)
    )


async def ids(world: StoredAccount) -> list[int]:
    async with world.uow.read() as tx:
        return [letter.letter_id for letter in await tx.dead_letters.list(100)]


async def test_letters_keep_every_field_and_are_listed_newest_first(world: StoredAccount) -> None:
    letters = [a_letter(world), a_letter(world, kind="tele/SENSOR", payload=b""), replace(a_letter(world), device_id=None)]
    async with world.uow.write() as tx:
        await tx.dead_letters.add_many(letters)
        await tx.dead_letters.add_many([])
    async with world.uow.read() as tx:
        found = await tx.dead_letters.list(100)
        assert [replace(letter, letter_id=0) for letter in reversed(found)] == letters
        assert [letter.letter_id for letter in found] == sorted((each.letter_id for each in found), reverse=True)
        assert list(await tx.dead_letters.list(1)) == [found[0]]
        assert list(await tx.dead_letters.list(9, device_id=world.device.device_id)) == list(found[1:])
        assert await tx.dead_letters.find(found[1].letter_id) == found[1]
        assert await tx.dead_letters.find(found[0].letter_id + 1) is None
        assert await tx.dead_letters.count() == 3


async def test_marked_letters_are_replayed_oldest_first_until_one_fails_again(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.dead_letters.add_many([a_letter(world)] * 3)
    third, second, first = await ids(world)
    async with world.uow.write() as tx:
        assert await tx.dead_letters.mark_for_replay([third, first, third + 1]) == 2
        assert [letter.letter_id for letter in await tx.dead_letters.list_for_replay(9)] == [first, third]
        await tx.dead_letters.set_aside_again(first, "again")
        [marked] = await tx.dead_letters.list_for_replay(9)
        assert (marked.letter_id, marked.state) == (third, IngestDeadLetterState.REPLAY)
        failed = await tx.dead_letters.find(first)
        assert (failed.state, failed.reason) == (IngestDeadLetterState.SET_ASIDE, "again")
        assert await tx.dead_letters.mark_for_replay(None) == 3
        assert len(await tx.dead_letters.list_for_replay(2)) == 2
        assert await tx.dead_letters.find(second) is not None


async def test_letters_are_deleted_by_id_by_age_by_device_or_all(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.dead_letters.add_many([a_letter(world)] * 4)
        await tx.dead_letters.add_many([replace(a_letter(world), device_no=99)] * 3)
    every = await ids(world)
    async with world.uow.write() as tx:
        assert await tx.dead_letters.delete_oldest(7) == 0
        assert await tx.dead_letters.delete_oldest(6) == 1
        assert await tx.dead_letters.delete([every[0], every[0] + 1]) == 1
        assert [await tx.dead_letters.delete_batch(world.device.device_no, 2) for _ in range(3)] == [2, 1, 0]
    assert await ids(world) == every[1:3]
    async with world.uow.write() as tx:
        assert await tx.dead_letters.delete(None) == 2
        assert await tx.dead_letters.count() == 0


async def test_the_oldest_letters_are_deleted_when_there_are_too_many(world: StoredAccount) -> None:
    service = IngestDeadLetterService(uow=world.uow, clock=ManualClock(NOW), max_letters=3)
    for number in range(5):
        await service.set_aside([replace(a_letter(world, payload=b"%d" % number), device_id=None, created_ms=0)])
    async with world.uow.read() as tx:
        kept = await tx.dead_letters.list(9)
    assert [letter.payload for letter in kept] == [b"4", b"3", b"2"]
    assert {(letter.device_id, letter.created_ms) for letter in kept} == {(world.device.device_id, NOW)}
    assert (service.added, service.discarded, service.count) == (5, 2, 3)
