"""Every way in which the feed ends reaches the client as a close code, also while it is talking: a socket that is closed with
something unread in it answers with a reset, and what the client had not read yet would be gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from adapters.http.feed.connection_limits import ConnectionLimits
from domain.kernel.caller import Role
from domain.kernel.ids import KeyId
from support.feed_world import FeedListener, FeedWorld, feed_world
from support.webhook_world import ACCOUNT

TURNS = 12


@contextlib.asynccontextmanager
async def chattering(client: FeedListener) -> AsyncIterator[None]:
    """The client sends and sends, and does not care what it is told."""

    async def chatter() -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await client.raw.send("x" * 5_000)

    task = asyncio.create_task(chatter())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def revoked(feed: FeedWorld, key_id: KeyId) -> None:
    async with feed.world.uow.write() as tx:
        await tx.api_keys.delete(key_id)
        await tx.emit(feed.world.fact("key_deleted"))


async def expired(feed: FeedWorld, _: KeyId) -> None:
    feed.world.clock.forward(seconds=3_601)
    feed.world.feed.mark_access_stale(ACCOUNT)


async def stopping(feed: FeedWorld, _: KeyId) -> None:
    feed.world.feed.stop()


@pytest.mark.parametrize(("how", "code"), [(revoked, 4003), (expired, 4001), (stopping, 1001)])
async def test_an_end_that_comes_while_the_client_talks_is_heard(
    how: Callable[[FeedWorld, KeyId], Awaitable[None]], code: int
) -> None:
    async with feed_world() as feed:
        key_id = await feed.world.key()
        shown = feed.callers.accept_token("ada") if how is expired else feed.callers.accept_key(key_id)
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(feed.client(f"?token={shown}")) for _ in range(TURNS)]
            for client in clients:
                await client.next()
                await stack.enter_async_context(chattering(client))
            await asyncio.sleep(0.05)
            await how(feed, key_id)
            assert [await client.closed() for client in clients] == [code] * TURNS


@pytest.mark.parametrize(("query", "code"), [("?token=nobody", 4001), ("?token=ada&types=weather", 1008)])
async def test_a_refusal_is_heard_by_a_client_that_talks_from_the_first_moment(query: str, code: int) -> None:
    async with feed_world() as feed:
        feed.callers.accept_token("ada")
        for _ in range(TURNS):
            async with feed.client(query) as client, chattering(client):
                assert await client.closed() == code


async def test_one_client_too_many_is_told_to_come_later() -> None:
    async with feed_world(limits=ConnectionLimits(total=1)) as feed:
        token = feed.callers.accept_token("ada")
        for _ in range(3):  # a seat is given back
            async with feed.client(f"?token={token}") as first:
                await first.next()
                async with feed.client(f"?token={token}") as second:
                    assert await second.closed() == 1013
            await feed.wait_until_empty()


async def test_one_caller_does_not_take_the_seats_of_others() -> None:
    async with feed_world(limits=ConnectionLimits(per_caller=2)) as feed:
        ada, eve = feed.callers.accept_token("ada"), feed.callers.accept_key(await feed.world.key())
        for _ in range(2):
            async with feed.client(f"?token={ada}") as first, feed.client(f"?token={ada}") as second:
                assert (await first.next())["type"] == (await second.next())["type"] == "initial_state"
                async with feed.client(f"?token={ada}") as third:
                    assert await third.closed() == 1013
                    assert "2 connections" in (third.raw.close_reason or "")
                async with feed.client(f"?token={eve}") as other:
                    assert (await other.next())["type"] == "initial_state"
            await feed.wait_until_empty()


async def test_a_crowd_that_says_nothing_keeps_nobody_out_who_shows_a_token() -> None:
    async with feed_world(limits=ConnectionLimits(unauthenticated=2)) as feed:
        token = feed.callers.accept_token("ada")
        async with feed.client() as first, feed.client() as second:
            async with feed.client() as third:
                assert await third.closed() == 1013
            async with feed.client(f"?token={token}") as ada:
                assert (await ada.next())["type"] == "initial_state"
            for late in (first, second):
                await late.send(type="auth", token=token)
                assert (await late.next())["type"] == "initial_state"
            async with feed.client() as again:
                await again.send(type="auth", token=token)
                assert (await again.next())["type"] == "initial_state"


@pytest.mark.parametrize("size", [64 * 1024 + 1, 300_000, 2_000_000])
async def test_a_message_that_is_too_long_ends_the_connection_however_it_is_cut(size: int) -> None:
    async with feed_world() as feed:
        token = feed.callers.accept_token("ada", Role.VIEWER)
        for query in ("", f"?token={token}"):
            for _ in range(TURNS // 2):
                async with feed.client(query) as client:
                    with contextlib.suppress(ConnectionClosed):
                        await client.raw.send("x" * size)
                    assert await client.closed() == 1009


async def test_a_client_that_never_reads_again_is_cut_off_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.http.feed.websocket.CLOSE_HANDSHAKE_TIMEOUT_S", 0.2)
    monkeypatch.setattr("adapters.http.feed.stream.SEND_TIMEOUT_S", 0.2)
    async with feed_world() as feed:
        device = await feed.world.device()
        feed.world.feed._max_queue_length = 20
        token = feed.callers.accept_token("ada")
        options: dict[str, Any] = {"max_queue": 1, "compression": None}
        async with feed.client(f"?token={token}", **options) as lazy:
            await lazy.next()
            lazy.raw.transport.pause_reading()
            while not feed.world.feed.dropped:
                async with feed.world.uow.write() as tx:
                    await tx.emit(feed.world.fact("relay_changed", device.device_id, filler="x" * 30_000))
                await asyncio.sleep(0)
            async with asyncio.timeout(10):
                while feed.world.feed.clients or [task for task in asyncio.all_tasks() if "feed" in task.get_name()]:
                    await asyncio.sleep(0.02)
            lazy.raw.transport.resume_reading()
            assert await lazy.closed() in (4008, 1006)
