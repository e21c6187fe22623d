"""Resuming with a cursor: all connections of a client together receive exactly the log."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from adapters.storage.sql.database import SqlDatabase
from domain.devices.model import Device
from domain.kernel.cursors import EVENTS, Cursor
from support.empty_database import empty_sqlite
from support.feed_world import FeedWorld, feed_world
from support.sealing import seal
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S
from support.webhook_world import WebhookWorld


@pytest.fixture(params=["memory", "sqlite"])
async def feed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FeedWorld]:
    if request.param == "memory":
        async with feed_world() as world:
            yield world
        return
    database = SqlDatabase(empty_sqlite(tmp_path / "feed.db"), acquire_timeout_s=TIMEOUT_S)
    await database.start()
    async with feed_world(await WebhookWorld(database.unit_of_work).populate()) as world:
        yield world
    await database.stop()


async def test_a_cursor_resumes_with_missed_events_and_continues_live(feed: FeedWorld) -> None:
    device = await feed.world.device()
    token = feed.callers.accept_token("ada")
    async with feed.client(f"?token={token}") as client:
        cursor = (await client.next())["cursor"]
    for number in range(3):
        await switch(feed, device, number)
    async with feed.client(f"?token={token}&cursor={cursor}") as client:
        state = await client.next()
        assert (state["type"], state["cursor"]) == ("initial_state", cursor)
        assert [(await client.next())["number"] for _ in range(3)] == [0, 1, 2]
        await switch(feed, device, 3)
        assert (await client.next())["number"] == 3


async def test_a_thousand_missed_events_come_in_order_and_once(feed: FeedWorld) -> None:
    device = await feed.world.device()
    token = feed.callers.accept_token("ada")
    async with feed.world.uow.write() as tx:
        for number in range(1_100):
            tx.emit(feed.world.domain_event("relay_changed", device.device_id, number=number))
    async with feed.client(f"?token={token}&cursor={Cursor(EVENTS, (0,)).encode()}") as client:
        await client.next()
        assert [(await client.next())["number"] for _ in range(1_100)] == list(range(1_100))
        assert await client.is_quiet()


async def test_missed_events_pass_the_filters_and_the_grants(feed: FeedWorld) -> None:
    seen, hidden = await feed.world.device(), await feed.world.device()
    key_id = await feed.world.key()
    await feed.world.grant(key_id, seen)
    cursor = Cursor(EVENTS, (0,)).encode()
    await switch(feed, hidden, 1)
    await switch(feed, seen, 2)
    async with feed.client(f"?token={feed.callers.accept_key(key_id)}&cursor={cursor}") as client:
        await client.next()
        assert (await client.next())["number"] == 2
        assert await client.is_quiet()


@pytest.mark.parametrize("cursor", ["nonsense", Cursor(EVENTS, (10**12,)).encode()])
async def test_an_unusable_cursor_is_answered_with_resync_and_the_state(feed: FeedWorld, cursor: str) -> None:
    token = feed.callers.accept_token("ada")
    async with feed.client(f"?token={token}&cursor={cursor}") as client:
        assert (await client.next())["type"] == "resync"
        assert (await client.next())["type"] == "initial_state"


async def test_a_cursor_older_than_the_log_is_answered_with_resync(feed: FeedWorld) -> None:
    device = await feed.world.device()
    token = feed.callers.accept_token("ada")
    async with feed.client(f"?token={token}") as client:
        cursor = (await client.next())["cursor"]
    await switch(feed, device, 1)
    await asyncio.sleep(0.01)
    await seal(feed.world.uow, feed.world.clock.now_ms() - 1)
    async with feed.world.uow.write() as tx:
        assert await tx.events.delete_older_than(feed.world.clock.now_ms(), 1_000)
    await switch(feed, device, 2)
    async with feed.client(f"?token={token}&cursor={cursor}") as client:
        assert (await client.next())["type"] == "resync"
        state = await client.next()
        assert state["cursor"] != cursor


async def test_a_client_that_reconnects_repeatedly_receives_exactly_the_log(feed: FeedWorld) -> None:
    device = await feed.world.device()
    token = feed.callers.accept_token("ada")
    chance = random.Random(6)
    total = 400
    seen: list[int] = []
    cursor = Cursor(EVENTS, (0,)).encode()

    async def happen() -> None:
        for number in range(total):
            await switch(feed, device, number)
            if number % 3 == 0:
                await asyncio.sleep(0.001)

    happening = asyncio.create_task(happen())
    async with asyncio.timeout(TIMEOUT_S):
        while len(seen) < total:
            async with feed.client(f"?token={token}&cursor={cursor}") as client:
                try:
                    for _ in range(chance.randrange(1, 60)):
                        reply: dict[str, Any] = await asyncio.wait_for(client.next(), OPERATION_TIMEOUT_S)
                        cursor = reply["cursor"]
                        if reply["type"] == "relay_changed":
                            seen.append(reply["number"])
                        if len(seen) >= total:
                            break
                except (ConnectionClosed, TimeoutError):
                    pass
                if chance.random() < 0.5:
                    client.raw.transport.abort()
        await happening
    assert seen == list(range(total))


async def switch(feed: FeedWorld, device: Device, number: int) -> None:
    async with feed.world.uow.write() as tx:
        tx.emit(feed.world.domain_event("relay_changed", device.device_id, number=number))
