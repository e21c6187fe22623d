"""A worker that stood still past its lease, while another took what it had in hand: its late words change nothing, and what it
had begun is not sent a second time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.storage.sql.database import SqlDatabase
from domain.kernel.clock import Now
from domain.webhooks.delivery import WebhookDeliveryBatch
from domain.webhooks.model import LEASE_MS, WebhookDelivery, WebhookDeliveryState
from domain.webhooks.ports import OutboundHttpResponse
from domain.webhooks.requests import DeliveryAttemptResult, InFlightWebhookDelivery
from support.empty_database import empty_postgres, empty_sqlite
from support.storage import STORAGES
from support.waiting import TIMEOUT_S
from support.webhook_receiver import respond, webhook_receiver
from support.webhook_world import WebhookWorld

STOOD_STILL_S = LEASE_MS / 1000 + 1
OK, FAILED = OutboundHttpResponse(200, None, b"", 5), OutboundHttpResponse(500, None, b"", 5)

Pair = tuple[WebhookWorld, WebhookWorld]


@pytest.fixture(params=[kind for kind in STORAGES if kind != "memory"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two workers over one database."""
    database = SqlDatabase(
        empty_sqlite(tmp_path / "hooks.db") if request.param == "sqlite" else await empty_postgres(), acquire_timeout_s=TIMEOUT_S
    )
    await database.start()
    first, second = (WebhookWorld(database.unit_of_work, exclusive=False) for _ in range(2))
    await first.populate()
    yield first, second
    for world in (first, second):
        await world.courier.close()
    await database.stop()


async def begun(world: WebhookWorld) -> InFlightWebhookDelivery:
    [job] = (await world.deliveries.next_batch([])).attempts
    return job


async def end(world: WebhookWorld, job: InFlightWebhookDelivery, reply: OutboundHttpResponse) -> WebhookDeliveryBatch:
    world.deliveries.release(job, 0.01)
    return await world.deliveries.next_batch([DeliveryAttemptResult(job, reply, Now.of(world.clock))])


async def stored(world: WebhookWorld, job: InFlightWebhookDelivery) -> WebhookDelivery:
    async with world.uow.read() as tx:
        return await tx.deliveries.get(job.delivery.no)  # type: ignore[no-any-return]


@pytest.mark.parametrize("late", [OK, FAILED], ids=["success", "failure"])
async def test_a_late_result_does_not_affect_the_instance_that_holds_the_delivery_now(
    pair: Pair, late: OutboundHttpResponse
) -> None:
    first, second = pair
    device = await first.device()
    made = await first.webhook("http://127.0.0.1:9/", device)
    await first.switch(device)
    lost = await begun(first)
    second.clock.forward(seconds=STOOD_STILL_S)
    held = await begun(second)
    assert not (await end(first, lost, late)).attempts
    assert await stored(first, held) == held.delivery
    await end(second, held, FAILED)
    again = await stored(second, held)
    assert (again.state, again.attempts) == (WebhookDeliveryState.PENDING, 1)
    second.clock.forward(seconds=6)
    held = await begun(second)
    assert not (await first.deliveries.next_batch([DeliveryAttemptResult(lost, FAILED, Now.of(first.clock))])).attempts
    await end(second, held, OK)
    assert (await stored(second, held)).state is WebhookDeliveryState.DELIVERED
    numbers = [attempt.number for attempt in await first.log.list_attempts(first.session(), made.webhook.webhook_id)]
    assert numbers == [2, 1, 1]


async def test_an_attempt_that_began_before_a_suspension_is_not_sent_after_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    taken: list[InFlightWebhookDelivery] = []
    turn = first.deliveries.next_batch

    async def stands_still(ended: Any) -> WebhookDeliveryBatch:
        """Between its commit and its sending."""
        done = await turn(ended)
        if done.attempts and not taken:
            for world in pair:
                world.clock.forward(seconds=STOOD_STILL_S)
            taken.append(await begun(second))
        return done

    monkeypatch.setattr(first.deliveries, "next_batch", stands_still)
    async with webhook_receiver(respond()) as receiver:
        device = await first.device()
        made = await first.webhook(receiver.url, device)
        await first.switch(device)
        async with first.delivering():
            async with asyncio.timeout(TIMEOUT_S):
                while not first.loop.postponed or first.loop._ended_attempts:
                    await asyncio.sleep(0.01)
            assert await stored(first, taken[0]) == taken[0].delivery
            [attempt] = await first.log.list_attempts(first.session(), made.webhook.webhook_id)
            assert attempt.delivery_id == taken[0].attempt.delivery_id
        assert not receiver.requests


async def test_deliveries_still_leased_after_a_suspension_are_sent_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = pair
    turn, stood = first.deliveries.next_batch, asyncio.Event()

    async def stands_still(ended: Any) -> WebhookDeliveryBatch:
        done = await turn(ended)
        if done.attempts and not stood.is_set():
            stood.set()
            first.clock.forward(seconds=STOOD_STILL_S)
        return done

    monkeypatch.setattr(first.deliveries, "next_batch", stands_still)
    async with webhook_receiver(respond()) as receiver:
        device = await first.device()
        made = await first.webhook(receiver.url, device)
        await first.switch(device)
        async with first.delivering():
            [attempt] = await first.attempts(made, 1)
            await asyncio.sleep(0.1)
        assert attempt.succeeded
        assert len(receiver.requests) == 1
