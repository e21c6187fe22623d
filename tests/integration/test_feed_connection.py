"""The live feed over real WebSockets: authentication, messages, and close codes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from domain.events.model import Event
from domain.kernel.caller import Role
from domain.kernel.ids import KeyId
from support.feed_world import FeedWorld, feed_world
from support.waiting import TIMEOUT_S
from support.webhook_world import ACCOUNT


@pytest.fixture(params=["wired", "plain"])
async def feed(request: pytest.FixtureRequest) -> AsyncIterator[FeedWorld]:
    async with feed_world(wired=request.param == "wired") as world:
        yield world


async def test_a_session_gets_the_state_and_then_what_happens_each_with_a_cursor(feed: FeedWorld) -> None:
    device = await feed.world.device()
    token = feed.callers.accept_token("ada")
    async with feed.client(f"?token={token}") as client:
        state = await client.next()
        assert state["type"] == "initial_state"
        [shown] = state["devices"]
        assert shown == {"deviceId": device.device_id, "name": "Pump", "relay": None, "isOnline": False, "lastSeen": None}
        await feed.world.switch(device)
        event = await client.next()
    assert event["type"] == "relay_changed"
    assert event["deviceId"] == device.device_id
    assert event["relay"] == "ON"
    assert event["cursor"] != state["cursor"]


@pytest.mark.parametrize("how", ["query", "bearer", "header", "first message", "first message with key"])
async def test_every_way_to_authenticate_works(feed: FeedWorld, how: str) -> None:
    token = feed.callers.accept_token("ada")
    secret = feed.callers.accept_key(await feed.world.key())
    options: dict[str, Any] = {}
    query, first = "", None
    if how == "query":
        query = f"?token={token}"
    elif how == "bearer":
        options["additional_headers"] = {"Authorization": f"Bearer {token}"}
    elif how == "header":
        options["additional_headers"] = {"X-Api-Key": secret}
    else:
        first = {"apiKey": secret} if "key" in how else {"token": token}
    async with feed.client(query, **options) as client:
        if first is not None:
            await client.send(type="auth", **first)
        assert (await client.next())["type"] == "initial_state"


@pytest.mark.parametrize("query", ["?token=nobody", "?token=sk_live_nobody"])
async def test_invalid_credentials_close_with_4001(feed: FeedWorld, query: str) -> None:
    async with feed.client(query) as client:
        assert await client.closed() == 4001


async def test_another_first_message_closes_with_4001(feed: FeedWorld) -> None:
    async with feed.client() as client:
        await client.raw.send("hello?")
        assert await client.closed() == 4001


async def test_an_unknown_type_in_the_filter_is_refused(feed: FeedWorld) -> None:
    token = feed.callers.accept_token("ada")
    async with feed.client(f"?token={token}&types=relay_changed,weather") as client:
        assert await client.closed() == 1008


async def test_a_key_receives_only_events_that_its_grants_cover(feed: FeedWorld) -> None:
    seen, hidden = await feed.world.device(), await feed.world.device()
    key_id = await feed.world.key()
    grant = await feed.world.grant(key_id, seen)
    async with feed.client(f"?token={feed.callers.accept_key(key_id)}") as client:
        state = await client.next()
        assert [device["deviceId"] for device in state["devices"]] == [seen.device_id]
        await feed.world.switch(hidden)
        await feed.world.switch(seen)
        assert (await client.next())["deviceId"] == seen.device_id
        await feed.world.revoke(grant)
        await feed.world.switch(seen)
        assert await client.is_quiet()
        await feed.world.grant(key_id, hidden)
        await feed.world.switch(hidden, "OFF")
        event = await client.next()
        assert (event["deviceId"], event["relay"]) == (hidden.device_id, "OFF")


async def test_an_expired_grant_ends_the_keys_access(feed: FeedWorld) -> None:
    device = await feed.world.device()
    key_id = await feed.world.key()
    await feed.world.grant(key_id, device, expires_ms=feed.world.clock.now_ms() + 60_000)
    async with feed.client(f"?token={feed.callers.accept_key(key_id)}") as client:
        await client.next()
        await feed.world.switch(device)
        await client.next()
        feed.world.clock.forward(seconds=61)
        await feed.world.switch(device)
        assert await client.is_quiet()


@pytest.mark.parametrize("how", ["disabled", "deleted"])
async def test_a_revoked_key_is_closed_with_4003(feed: FeedWorld, how: str) -> None:
    key_id = await feed.world.key()
    async with feed.client(f"?token={feed.callers.accept_key(key_id)}") as client:
        await client.next()
        await end_key(feed, key_id, how)
        assert await client.closed() == 4003


async def test_a_member_who_is_removed_is_closed_with_4003(feed: FeedWorld) -> None:
    token = feed.callers.accept_token("bob", Role.MEMBER)
    async with feed.client(f"?token={token}") as client:
        await client.next()
        async with feed.world.uow.write() as tx:
            await tx.memberships.delete(feed.world.session(Role.MEMBER).membership_id)
            tx.emit(feed.world.domain_event("member_changed"))
        assert await client.closed() == 4003


async def test_a_token_that_expires_closes_with_4001_unless_it_was_renewed_in_band(feed: FeedWorld) -> None:
    device = await feed.world.device()
    short = feed.callers.accept_token("short", for_ms=60_000)
    async with feed.client(f"?token={short}") as renews, feed.client(f"?token={short}") as forgets:
        await renews.next()
        await forgets.next()
        await renews.send(type="auth", token=feed.callers.accept_token("long"))
        assert (await renews.next())["type"] == "authenticated"
        feed.world.clock.forward(seconds=61)
        await feed.world.switch(device)
        assert (await renews.next())["type"] == "relay_changed"
        assert await forgets.closed() == 4001


async def test_renewing_as_somebody_else_closes_with_4001(feed: FeedWorld) -> None:
    async with feed.client(f"?token={feed.callers.accept_token('ada')}") as client:
        await client.next()
        await client.send(type="auth", token=feed.callers.accept_token("bob", Role.VIEWER))
        assert await client.closed() == 4001


async def test_filters_choose_types_and_a_device(feed: FeedWorld) -> None:
    one, two = await feed.world.device(), await feed.world.device()
    token = feed.callers.accept_token("ada")
    async with (
        feed.client(f"?token={token}&types=device_online,schedule_fired") as kinds,
        feed.client(f"?token={token}&deviceId={two.device_id}") as only,
    ):
        await kinds.next()
        assert [device["deviceId"] for device in (await only.next())["devices"]] == [two.device_id]
        await feed.world.switch(one)
        await feed.world.switch(two)
        async with feed.world.uow.write() as tx:
            tx.emit(feed.world.domain_event("device_online", one.device_id, reason="connected"))
        assert (await kinds.next())["type"] == "device_online"
        assert (await only.next())["deviceId"] == two.device_id
        assert await only.is_quiet()


async def test_telemetry_carries_the_cursor_of_the_last_logged_event(feed: FeedWorld) -> None:
    device = await feed.world.device()
    payload: dict[str, Any] = {"type": "telemetry", "deviceId": device.device_id, "metric": "temperature", "value": 21.5}
    event = Event(0, "evt_x", ACCOUNT, device.device_id, "Pump", "telemetry", "", 1, "device", "", payload)  # type: ignore[arg-type]
    async with feed.client(f"?token={feed.callers.accept_token('ada')}") as client:
        await client.next()
        await feed.world.switch(device)
        switched = await client.next()
        async with feed.world.uow.write() as tx:
            await feed.world.recorder.publish_transient(tx, [event])
        reading = await client.next()
    assert reading == {**payload, "cursor": switched["cursor"]}


async def test_a_client_that_does_not_read_is_closed_with_4008_and_slows_nobody(feed: FeedWorld) -> None:
    device = await feed.world.device()
    token = feed.callers.accept_token("ada")
    feed.world.feed._max_queue_length = 50
    async with feed.client(f"?token={token}") as good, feed.client(f"?token={token}", max_queue=1, compression=None) as lazy:
        await good.next()
        await lazy.next()
        lazy.raw.transport.pause_reading()
        reported = 0
        while not feed.world.feed.dropped:
            async with feed.world.uow.write() as tx:
                tx.emit(feed.world.domain_event("relay_changed", device.device_id, relay="ON", filler="x" * 30_000))
            await good.next()
            reported += 1
            assert reported < 5_000
        lazy.raw.transport.resume_reading()
        assert await lazy.closed() == 4008
        await feed.world.switch(device, "OFF")
        assert (await good.next())["relay"] == "OFF"


async def test_connections_are_closed_when_the_service_stops(feed: FeedWorld) -> None:
    async with feed.client(f"?token={feed.callers.accept_token('ada')}") as client:
        await client.next()
        feed.world.feed.stop()
        assert await client.closed() == 1001


async def test_a_disconnected_client_is_removed(feed: FeedWorld) -> None:
    async with feed.client(f"?token={feed.callers.accept_token('ada')}") as client:
        await client.next()
        assert feed.world.feed.clients == 1
    async with asyncio.timeout(TIMEOUT_S):
        while feed.world.feed.clients:
            await asyncio.sleep(0.01)


async def end_key(feed: FeedWorld, key_id: KeyId, how: str) -> None:
    from dataclasses import replace

    async with feed.world.uow.write() as tx:
        if how == "deleted":
            await tx.api_keys.delete(key_id)
        else:
            key = await tx.api_keys.get(ACCOUNT, key_id)
            await tx.api_keys.save(replace(key, enabled=False))
        tx.emit(feed.world.domain_event(f"key_{how}"))
