"""The event log."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from domain.events.cursors import EventLogCursor
from domain.events.model import Event, EventSearch
from support.sealing import seal
from support.storage import NOW, StoredAccount, an_account, an_event, new_id
from support.waiting import TIMEOUT_S


async def append(tx: Any, event: Event) -> Event:
    return (await append_many(tx, [event]))[0]


async def append_many(tx: Any, events: Sequence[Event]) -> list[Event]:
    stored = await tx.events.append_many(events)
    await tx.events.oldest_position()  # with a read, the returned sequence is complete
    return list(stored)


async def test_an_event_comes_back_as_it_went_in_with_a_position(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        stored = await append(tx, an_event(world))
        assert stored.position > 0
        assert list(await tx.events.page(world.account.account_id, limit=5)) == [stored]


async def test_positions_are_unique_and_the_log_is_read_by_position(world: StoredAccount) -> None:
    async def write() -> Event:
        async with world.uow.write() as tx:
            return await append(tx, an_event(world))

    written = await asyncio.gather(*[write() for _ in range(50)])
    async with world.uow.read() as tx:
        found = await tx.events.list_public_after(world.account.account_id, EventLogCursor(), 99)
    assert list(found) == sorted(written, key=lambda event: event.position)
    assert len({event.position for event in found}) == 50


async def test_a_reader_misses_and_doubles_nothing_while_eight_writers_commit_out_of_order(world: StoredAccount) -> None:
    """Transactions that begin together, write early and commit late; the reader's pages are small."""
    chance = random.Random(3)
    writing = True
    followed: list[Event] = []
    cursor = EventLogCursor()

    async def write() -> None:
        for _ in range(12):
            async with world.uow.write() as tx:
                await asyncio.sleep(chance.random() / 500)
                device_id = chance.choice((world.device.device_id, None))
                await tx.events.append_many([an_event(world, device_id=device_id) for _ in range(chance.randrange(1, 4))])
                await asyncio.sleep(chance.random() / 200)

    async def follow() -> None:
        nonlocal cursor
        while True:
            last_look = not writing
            async with world.uow.read() as tx:
                found = await tx.events.list_after(cursor, 5)
                end = await tx.events.end() if len(found) < 5 and chance.random() < 0.3 else EventLogCursor()
            followed.extend(found)
            cursor = cursor.after(found).union(end)
            if last_look and len(found) < 5:
                return
            if chance.random() < 0.1:
                async with world.uow.write() as tx:
                    await tx.events.advance_idle_writers()
            await asyncio.sleep(0)

    async with asyncio.timeout(TIMEOUT_S):
        following = asyncio.create_task(follow())
        await asyncio.gather(*[write() for _ in range(8)])
        writing = False
        await following
    async with world.uow.read() as tx:
        log = list(await tx.events.list_after(EventLogCursor(), 10_000))
    assert sorted(followed, key=lambda event: event.position) == log
    assert len(log) >= 96
    for writer in {event.writer for event in log}:
        assert [event for event in followed if event.writer == writer] == [event for event in log if event.writer == writer]
    of_device = [event.position for event in followed if event.device_id is not None]
    assert of_device == sorted(of_device), "of one device whoever follows sees the order of the positions"


async def test_pages_do_not_shift_while_events_are_added(world: StoredAccount) -> None:
    account_id = world.account.account_id
    async with world.uow.write() as tx:
        before = [await append(tx, an_event(world)) for _ in range(20)]
    shown: list[int] = []
    cursor: int | None = None
    while True:
        async with world.uow.write() as tx:
            await tx.events.append_many([an_event(world) for _ in range(3)])
            page = await tx.events.page(account_id, limit=6, before=before[-1].position + 1 if cursor is None else cursor)
        if not page:
            break
        shown += [event.position for event in page]
        cursor = page[-1].position
    assert shown == [event.position for event in reversed(before)]


async def test_pages_go_back_by_position_and_filter_by_kind_and_device(world: StoredAccount) -> None:
    other = new_id("dev")
    async with world.uow.write() as tx:
        for number in range(6):
            kind = "relay_changed" if number % 2 else "grant_created"
            await append(tx, an_event(world, kind=kind, device_id=other if number < 2 else world.device.device_id))
        account_id = world.account.account_id
        everything = await tx.events.page(account_id, limit=99)
        positions = [event.position for event in everything]
        assert positions == sorted(positions, reverse=True)
        second = await tx.events.page(account_id, limit=2, before=positions[1])
        assert [event.position for event in second] == positions[2:4]
        assert len(await tx.events.page(account_id, limit=99, kind="relay_changed")) == 3
        assert len(await tx.events.page(account_id, limit=99, device_id=other)) == 2
        both = await tx.events.page(account_id, limit=99, kind="relay_changed", device_id=other, before=positions[0])
        assert [(event.kind, event.device_id) for event in both] == [("relay_changed", other)]


async def test_pages_are_searched_by_time_source_and_text(world: StoredAccount) -> None:
    account_id = world.account.account_id
    async with world.uow.write() as tx:
        for number, (source, description) in enumerate(
            [("device", "100% done"), ("user:usr_a", "Gate opened"), ("device", "gate_shut")]
        ):
            await append(tx, an_event(world, source=source, description=description, at_ms=NOW + number, device_name="Yard"))

        async def found(**search: Any) -> list[str]:
            page = await tx.events.page(account_id, limit=9, search=EventSearch(**search))
            return [event.description for event in page]

        assert await found() == ["gate_shut", "Gate opened", "100% done"]
        assert await found(since_ms=NOW + 1) == ["gate_shut", "Gate opened"]
        assert await found(until_ms=NOW + 1) == ["100% done"]
        assert await found(source="device") == ["gate_shut", "100% done"]
        assert await found(text="GATE") == ["gate_shut", "Gate opened"]
        assert await found(text="e_s") == ["gate_shut"]  # no pattern
        assert await found(text="0%") == ["100% done"]
        assert await found(text="yard", source="user:usr_a") == ["Gate opened"]
        await append(tx, an_event(world, description="Ωμέγα was renamed", at_ms=NOW + 9, device_name="Насос"))
        for text in ("НАСОС", "насос", "ωμέγα", "ΩΜΈΓΑ WAS", "Ωμε\u0301γα"):
            assert await found(text=text) == ["Ωμέγα was renamed"]


async def test_totals_count_all_events_or_the_filtered_ones(world: StoredAccount) -> None:
    account_id = world.account.account_id
    async with world.uow.write() as tx:
        assert await tx.events.count(account_id) == 0
        for kind in ("relay_changed", "relay_changed", "grant_created"):
            await append(tx, an_event(world, kind=kind))
        await append(tx, an_event(world, device_id=None, device_name=None))
        assert await tx.events.count(account_id) == 4
        assert await tx.events.count(account_id, kind="grant_created") == 1
        assert await tx.events.count(account_id, device_id=world.device.device_id) == 3
        assert await tx.events.count(account_id, kind="relay_changed", device_id=world.device.device_id) == 2


async def test_a_feed_resumes_with_public_events_only(world: StoredAccount) -> None:
    account_id = world.account.account_id
    async with world.uow.write() as tx:
        first = await append(tx, an_event(world))
        await append(tx, an_event(world, kind="grant_created"))
        third = await append(tx, an_event(world, kind="device_online"))
        assert list(await tx.events.list_public_after(account_id, EventLogCursor(), 9)) == [first, third]
        assert list(await tx.events.list_public_after(account_id, EventLogCursor().after([first]), 9)) == [third]
        assert list(await tx.events.list_public_after(account_id, EventLogCursor(), 1)) == [first]


async def test_the_log_has_an_oldest_position_and_an_end(world: StoredAccount) -> None:
    other = an_account()
    async with world.uow.write() as tx:
        await tx.accounts.add(other)
        assert (await tx.events.oldest_position(), await tx.events.end()) == (0, EventLogCursor())
        first = await append(tx, an_event(world))
    assert await seal(world.uow, NOW - 1) == 1
    async with world.uow.write() as tx:
        second = await append(tx, an_event(world, account_id=other.account_id))
    async with world.uow.write() as tx:
        assert (await tx.events.oldest_position(), (await tx.events.end()).highest) == (first.position, second.position)
        assert len(await tx.events.page(other.account_id, limit=9)) == 1
        await tx.events.delete_older_than(NOW, 9)
        assert await tx.events.oldest_position() == second.position


async def test_a_devices_log_is_read_back_by_time(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        for at_ms in (NOW + 2, NOW, NOW + 1, NOW + 1):
            await append(tx, an_event(world, at_ms=at_ms))
        await append(tx, an_event(world, device_id=new_id("dev")))
        device_id = world.device.device_id
        log = await tx.events.list_by_device(device_id, limit=9, before=None)
        assert [event.at_ms for event in log] == [NOW + 2, NOW + 1, NOW + 1, NOW]
        assert log[1].position > log[2].position
        assert list(await tx.events.list_by_device(device_id, limit=2, before=(NOW + 2, 0))) == log[1:3]
        newer, older = log[1], log[2]
        rest = await tx.events.list_by_device(device_id, limit=9, before=(newer.at_ms, newer.position))
        assert [event.event_id for event in rest] == [older.event_id, log[3].event_id], "of one millisecond, the lower position"


async def test_totals_stay_right_when_old_events_are_deleted(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.events.append_many([an_event(world, at_ms=NOW + number) for number in range(3)])
    await seal(world.uow, NOW + 2)
    async with world.uow.write() as tx:
        await tx.events.append_many([an_event(world, at_ms=NOW + number) for number in (3, 4)])
    async with world.uow.write() as tx:
        assert await tx.events.delete_older_than(NOW + 2, 9) == 0
        assert [await tx.events.delete_older_than(NOW + 3, 2) for _ in range(3)] == [2, 1, 0]
        assert await tx.events.count(world.account.account_id) == 2
        assert await tx.events.count(world.account.account_id, device_id=world.device.device_id) == 2
        assert await tx.events.count(world.account.account_id, kind="relay_changed", device_id=world.device.device_id) == 2
        assert [event.at_ms for event in await tx.events.page(world.account.account_id, limit=9)] == [NOW + 4, NOW + 3]


async def test_many_events_are_appended_in_their_order_and_counted(world: StoredAccount) -> None:
    other = an_account()
    async with world.uow.write() as tx:
        await tx.accounts.add(other)
        made = [an_event(world, at_ms=NOW + number) for number in range(5)] + [an_event(world, account_id=other.account_id)]
        stored = await append_many(tx, made)
        assert list(await tx.events.append_many([])) == []
        assert [replace(event, position=0, writer=0) for event in stored] == made
        last = await append(tx, an_event(world))
    positions = [event.position for event in (*stored, last)]
    assert positions == sorted(set(positions))
    async with world.uow.read() as tx:
        assert list(await tx.events.list_public_after(world.account.account_id, EventLogCursor(), 99)) == [*stored[:5], last]
        assert await tx.events.count(world.account.account_id) == 6
        assert await tx.events.count(other.account_id) == 1


async def test_the_log_of_all_accounts_can_be_followed_in_its_order(world: StoredAccount) -> None:
    other = an_account()
    async with world.uow.write() as tx:
        await tx.accounts.add(other)
        assert await tx.events.end() == EventLogCursor()
        first = [await append(tx, an_event(world, kind="grant_created")) for _ in range(2)]
        second = await append(tx, an_event(world, account_id=other.account_id))
    async with world.uow.read() as tx:
        end = await tx.events.end()
        assert list(await tx.events.list_after(EventLogCursor(), 9)) == [*first, second]
        assert list(await tx.events.list_kinds_after(EventLogCursor(), 9)) == ["grant_created", "grant_created", "relay_changed"]
        assert list(await tx.events.list_after(EventLogCursor().after(first[:1]), 1)) == [first[1]]
        for cursor in (EventLogCursor(second.position), EventLogCursor().after([second]), end):
            assert list(await tx.events.list_after(cursor, 9)) == []
    async with world.uow.write() as tx:
        await tx.events.advance_idle_writers()
    async with world.uow.write() as tx:
        assert await tx.events.end() == EventLogCursor(second.position)
        third = await append(tx, an_event(world))
        assert list(await tx.events.list_after(EventLogCursor(second.position), 9)) == [third]
