"""Each end of the feed reaches the client as a close code, also while the client is sending: closing a socket with unread
input resets the connection, and the client would lose what it had not read yet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from adapters.http.feed.endpoint import FeedConnectionLimiter
from domain.kernel.caller import Role
from domain.kernel.ids import KeyId
from support.feed_world import FeedListener, FeedWorld, feed_world
from support.waiting import TIMEOUT_S
from support.webhook_world import ACCOUNT

TURNS = 12


@contextlib.asynccontextmanager
async def chattering(client: FeedListener) -> AsyncIterator[None]:
    """A client that keeps sending and does not read."""

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
        tx.emit(feed.world.domain_event("key_deleted"))


async def expired(feed: FeedWorld, _: KeyId) -> None:
    feed.world.clock.forward(seconds=3_601)
    feed.world.feed.mark_access_stale(ACCOUNT)


async def stopping(feed: FeedWorld, _: KeyId) -> None:
    feed.world.feed.stop()


@pytest.mark.parametrize(("how", "code"), [(revoked, 4003), (expired, 4001), (stopping, 1001)])
async def test_a_close_frame_reaches_a_client_that_is_sending(
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
async def test_a_refusal_reaches_a_client_that_sends_at_once(query: str, code: int) -> None:
    async with feed_world() as feed:
        feed.callers.accept_token("ada")
        for _ in range(TURNS):
            async with feed.client(query) as client, chattering(client):
                assert await client.closed() == code


async def test_a_connection_beyond_the_limit_closes_with_1013() -> None:
    async with feed_world(limiter=FeedConnectionLimiter(total=1)) as feed:
        token = feed.callers.accept_token("ada")
        for _ in range(3):  # a seat is given back
            async with feed.client(f"?token={token}") as first:
                await first.next()
                async with feed.client(f"?token={token}") as second:
                    assert await second.closed() == 1013
            await feed.wait_until_empty()


async def test_one_caller_cannot_use_all_connections() -> None:
    async with feed_world(limiter=FeedConnectionLimiter(per_caller=2)) as feed:
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


async def test_silent_connections_do_not_block_authenticated_ones() -> None:
    async with feed_world(limiter=FeedConnectionLimiter(unauthenticated=2)) as feed:
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
async def test_a_message_that_is_too_long_closes_the_connection_in_any_fragmentation(size: int) -> None:
    async with feed_world() as feed:
        token = feed.callers.accept_token("ada", Role.VIEWER)
        for query in ("", f"?token={token}"):
            for _ in range(TURNS // 2):
                async with feed.client(query) as client:
                    with contextlib.suppress(ConnectionClosed):
                        await client.raw.send("x" * size)
                    assert await client.closed() == 1009


async def test_a_client_that_stops_reading_is_closed_without_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.http.feed.connection.CLOSE_HANDSHAKE_TIMEOUT_S", 0.2)
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
                    tx.emit(feed.world.domain_event("relay_changed", device.device_id, filler="x" * 30_000))
                await asyncio.sleep(0)
            async with asyncio.timeout(TIMEOUT_S):
                while feed.world.feed.clients or [task for task in asyncio.all_tasks() if "feed" in task.get_name()]:
                    await asyncio.sleep(0.02)
            lazy.raw.transport.resume_reading()
            assert await lazy.closed() in (4008, 1006)
