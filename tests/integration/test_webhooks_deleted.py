"""Deleting a webhook, its key or its device when very much is owed: gone at once, and the rows in steps, over restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.workers.due import WakeEvent
from app.workers.periodic import DeletedWebhookCleanupWorker
from domain.kernel.errors import NotFound
from domain.webhooks import delivery as cleanup
from domain.webhooks.delivery import DeletedWebhookCleanup
from support.storage import STORAGES, a_delivery
from support.waiting import TIMEOUT_S
from support.webhook_receiver import respond, webhook_receiver
from support.webhook_world import WebhookWorld, webhook_world

PENDING = 3_500


@pytest.fixture(params=[kind for kind in STORAGES if kind != "memory"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[WebhookWorld]:
    async with webhook_world(request.param, tmp_path) as world:
        yield world


async def add_pending(world: WebhookWorld, count: int, url: str = "http://127.0.0.1:9/") -> str:
    """A webhook that is owed `count` events."""
    device = await world.device()
    made = await world.webhook(url, device)
    pending = a_delivery(made.webhook, device_id=device.device_id)
    async with world.uow.write() as tx:
        await tx.deliveries.add_many([pending] * count)
    return made.webhook.webhook_id


@pytest.mark.parametrize("how", ["webhook", "key"])
async def test_it_is_gone_at_once_and_its_rows_in_steps_between_which_others_write(world: WebhookWorld, how: str) -> None:
    webhook_id = await add_pending(world, PENDING)
    [webhook] = await world.webhooks.list(world.session())
    if how == "webhook":
        await world.webhooks.delete(world.session(), webhook_id)
    else:
        async with world.uow.write() as tx:
            await tx.api_keys.delete(webhook.key_id)
            tx.emit(world.domain_event("key_deleted"))
    assert not await world.webhooks.list(world.session())
    with pytest.raises(NotFound):
        await world.log.list_attempts(world.session(), webhook_id)
    sweep = DeletedWebhookCleanup(uow=world.uow)
    steps = 0
    while await sweep.run_once():
        steps += 1
    assert steps == -(-PENDING // cleanup.CLEANUP_BATCH_ROWS)
    async with world.uow.read() as tx:
        assert await tx.deliveries.get(1) is None
        assert await tx.deliveries.next_due_ms() is None


async def test_what_a_stop_left_half_done_is_taken_up_again(world: WebhookWorld) -> None:
    webhook_id = await add_pending(world, PENDING)
    await world.webhooks.delete(world.session(), webhook_id)
    assert await DeletedWebhookCleanup(uow=world.uow).run_once()  # and then the process ended
    loop = DeletedWebhookCleanupWorker(cleanup=DeletedWebhookCleanup(uow=world.uow), wake_event=WakeEvent())
    task = asyncio.create_task(loop.run())
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            async with world.uow.read() as tx:
                if await tx.deliveries.find_orphaned_webhook_id() is None:
                    break
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task], timeout=TIMEOUT_S)
    assert loop.failures == 0


@pytest.mark.parametrize("change", ["delete", "disable"])
async def test_a_backlog_that_is_dropped_delays_nobody_and_sends_nothing_more(world: WebhookWorld, change: str) -> None:
    async with webhook_receiver(respond(500)) as failing, webhook_receiver(respond()) as healthy:
        webhook_id = await add_pending(world, PENDING, failing.url)
        device = await world.device()
        await world.webhook(healthy.url, device)
        if change == "delete":
            await world.webhooks.delete(world.session(), webhook_id)
        else:
            await world.webhooks.update(world.session(), webhook_id, enabled=False)
        async with world.delivering():
            await world.switch(device)
            await healthy.wait_for(1)
        assert not failing.requests
