"""Who hears of a device, kept in memory, and never wrong because of it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest

from domain.webhooks.recipients import CACHE_TTL_MS, MAX_PENDING_CHANGE_MS
from support.memory_storage.webhooks import MemoryWebhookRepository
from support.webhook_world import WebhookWorld

URL = "http://127.0.0.1:9/hook"


@pytest.fixture
async def world() -> WebhookWorld:
    return await WebhookWorld().populate()


async def pending(world: WebhookWorld) -> int:
    async with world.uow.write() as tx:
        return len(await tx.deliveries.claim(world.clock.now_ms() + 1, world.clock.now_ms() + 10**9, 10_000))


async def test_an_account_without_webhooks_costs_no_look_up_a_second_time(
    world: WebhookWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await world.device()
    await world.switch(device)

    async def never(*_: Any) -> Any:
        raise AssertionError("looked up again")

    monkeypatch.setattr(MemoryWebhookRepository, "list_enabled", never)
    for _ in range(10):
        await world.switch(device)
    assert await pending(world) == 0


async def test_a_grant_applies_from_its_own_transaction_on(world: WebhookWorld) -> None:
    device = await world.device()
    made = await world.webhook(URL)
    await world.switch(device)
    assert await pending(world) == 0
    await world.grant(made.webhook.key_id, device)
    await world.switch(device)
    assert await pending(world) == 1


async def test_a_grant_that_is_rolled_back_never_applies(world: WebhookWorld) -> None:
    device = await world.device()
    made = await world.webhook(URL)
    with contextlib.suppress(RuntimeError):
        async with world.uow.write() as tx:
            grant = await world.grant_of(made.webhook.key_id, device)
            await tx.grants.add(grant)
            tx.emit(world.domain_event("grant_created"))
            tx.emit(world.domain_event("relay_changed", device.device_id))  # looked up inside: it would have counted
            raise RuntimeError
    await world.switch(device)
    assert await pending(world) == 0
    world.clock.forward(seconds=MAX_PENDING_CHANGE_MS / 1000 + 1)
    await world.switch(device)
    assert await pending(world) == 0


async def test_an_expired_grant_stops_deliveries_without_an_event(world: WebhookWorld) -> None:
    device = await world.device()
    made = await world.webhook(URL)
    await world.grant(made.webhook.key_id, device, expires_ms=world.clock.now_ms() + 5_000)
    await world.switch(device)
    world.clock.forward(seconds=6)
    await world.switch(device)
    assert await pending(world) == 1


async def test_a_change_without_an_event_applies_after_the_cache_expires(world: WebhookWorld) -> None:
    device = await world.device()
    made = await world.webhook(URL)
    await world.switch(device)
    async with world.uow.write() as tx:
        await tx.grants.add(await world.grant_of(made.webhook.key_id, device))
    world.clock.forward(seconds=CACHE_TTL_MS / 1000 + 1)
    await world.switch(device)
    assert await pending(world) == 1


async def test_a_cache_that_is_not_exclusive_keeps_nothing() -> None:
    world = await WebhookWorld(exclusive=False).populate()
    device = await world.device()
    made = await world.webhook(URL)
    await world.switch(device)
    async with world.uow.write() as tx:  # as another process would: this one hears nothing of it
        await tx.grants.add(await world.grant_of(made.webhook.key_id, device))
    await world.switch(device)
    assert await pending(world) == 1


async def test_each_event_is_delivered_to_exactly_the_webhooks_that_saw_the_device_at_that_time(world: WebhookWorld) -> None:
    chance = random.Random(4)
    devices = [await world.device() for _ in range(3)]
    hooks = [await world.webhook(URL) for _ in range(3)]
    expected = 0
    grants: dict[tuple[int, int], Any] = {}

    async def change() -> None:
        hook_row, device = chance.randrange(3), chance.randrange(3)
        if (hook_row, device) in grants:
            await world.revoke(grants.pop((hook_row, device)))
        else:
            grants[hook_row, device] = await world.grant(hooks[hook_row].webhook.key_id, devices[device])

    async def happen() -> None:
        nonlocal expected
        device = chance.randrange(3)
        async with world.uow.write() as tx:
            expected += len({key for key in grants if key[1] == device})
            tx.emit(world.domain_event("relay_changed", devices[device].device_id))

    for _ in range(200):
        await (change() if chance.random() < 0.3 else happen())
        if chance.random() < 0.2:
            await asyncio.sleep(0)
    assert await pending(world) == expected > 50


async def test_a_batch_of_many_deliveries_loads_the_recipients_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await WebhookWorld(exclusive=False).populate()
    devices = [await world.device() for _ in range(3)]
    hooks = [await world.webhook(URL, *devices) for _ in range(4)]
    for device in devices:
        await world.switch(device)
    requested = 0
    live = MemoryWebhookRepository.list_enabled

    async def counted(webhooks: MemoryWebhookRepository, account_ids: Any) -> Any:
        nonlocal requested
        requested += 1
        return await live(webhooks, account_ids)

    monkeypatch.setattr(MemoryWebhookRepository, "list_enabled", counted)
    turn = await world.deliveries.next_batch([])
    assert (len(turn.attempts), requested) == (len(devices) * len(hooks), 1)
