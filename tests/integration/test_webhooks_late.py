"""A worker that stood still past its lease, while another took what it had in hand: its late words change nothing, and what it
had begun is not sent a second time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.storage.sql.database import SqlDatabase
from domain.kernel.clock import Moment
from domain.webhooks.attempts import AttemptResult, InFlightAttempt
from domain.webhooks.delivery import DeliveryBatch
from domain.webhooks.model import Delivery, DeliveryState
from domain.webhooks.policy import LEASE_MS
from domain.webhooks.ports import WebhookResponse
from support.storage import STORAGES, empty_postgres, sqlite_url
from support.webhook_receiver import respond, webhook_receiver
from support.webhook_world import WebhookWorld

STOOD_STILL_S = LEASE_MS / 1000 + 1
OK, FAILED = WebhookResponse(200, None, b"", 5), WebhookResponse(500, None, b"", 5)

Pair = tuple[WebhookWorld, WebhookWorld]


@pytest.fixture(params=[kind for kind in STORAGES if kind != "memory"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two workers over one database."""
    database = SqlDatabase(sqlite_url(tmp_path / "hooks.db") if request.param == "sqlite" else await empty_postgres())
    await database.start()
    first, second = (WebhookWorld(database.unit_of_work, exclusive=False) for _ in range(2))
    await first.populate()
    yield first, second
    for world in (first, second):
        await world.courier.close()
    await database.stop()


async def begun(world: WebhookWorld) -> InFlightAttempt:
    [job] = (await world.deliveries.next_batch([])).attempts
    return job


async def end(world: WebhookWorld, job: InFlightAttempt, reply: WebhookResponse) -> DeliveryBatch:
    world.deliveries.release(job, 0.01)
    return await world.deliveries.next_batch([AttemptResult(job, reply, Moment.now(world.clock))])


async def stored(world: WebhookWorld, job: InFlightAttempt) -> Delivery:
    async with world.uow.read() as tx:
        return await tx.deliveries.get(job.delivery.no)  # type: ignore[no-any-return]


@pytest.mark.parametrize("late", [OK, FAILED], ids=["success", "failure"])
async def test_a_late_result_does_not_affect_the_instance_that_holds_the_delivery_now(pair: Pair, late: WebhookResponse) -> None:
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
    assert (again.state, again.attempts) == (DeliveryState.PENDING, 1)
    second.clock.forward(seconds=6)
    held = await begun(second)
    assert not (await first.deliveries.next_batch([AttemptResult(lost, FAILED, Moment.now(first.clock))])).attempts
    await end(second, held, OK)
    assert (await stored(second, held)).state is DeliveryState.DELIVERED
    numbers = [attempt.number for attempt in await first.log.list_attempts(first.session(), made.webhook.webhook_id)]
    assert numbers == [2, 1, 1]


async def test_an_attempt_that_began_before_a_suspension_is_not_sent_after_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    taken: list[InFlightAttempt] = []
    turn = first.deliveries.next_batch

    async def stands_still(ended: Any) -> DeliveryBatch:
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
            async with asyncio.timeout(10):
                while not first.loop.postponed or first.loop._ended_attempts:
                    await asyncio.sleep(0.01)
            assert await stored(first, taken[0]) == taken[0].delivery
            [attempt] = await first.log.list_attempts(first.session(), made.webhook.webhook_id)
            assert attempt.delivery_id == taken[0].attempt.delivery_id
        assert not receiver.requests


async def test_deliveries_still_leased_after_a_suspension_are_sent_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = pair
    turn, stood = first.deliveries.next_batch, asyncio.Event()

    async def stands_still(ended: Any) -> DeliveryBatch:
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
