"""What a receiver lost for good while it was away is sent again on request: in order, once, and without a burden for the others."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.workers.due import DueWorker
from app.workers.periodic import recover_webhooks
from domain.kernel.caller import Role
from domain.kernel.errors import Conflict, NotFound, PermissionDenied
from domain.kernel.ids import DeviceId
from domain.webhooks.model import WebhookDelivery, WebhookDeliveryState, encode_payload
from domain.webhooks.recovery import MAX_FAILED_IN_ROW
from domain.webhooks.service import WebhookWithSecret
from support.storage import STORAGES, a_delivery
from support.waiting import TIMEOUT_S
from support.webhook_receiver import Receiver, respond, webhook_receiver
from support.webhook_world import WebhookWorld, webhook_world

GIVEN_UP, CANCELLED = WebhookDeliveryState.GIVEN_UP, WebhookDeliveryState.CANCELLED


@pytest.fixture(params=STORAGES)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[WebhookWorld]:
    async with webhook_world(request.param, tmp_path) as world, world.delivering():
        recovering = DueWorker("recovery", lambda: recover_webhooks(world.recoveries), world.recovery_wake_event)
        task = asyncio.create_task(recovering.run())
        yield world
        task.cancel()
        await asyncio.wait([task], timeout=TIMEOUT_S)
        assert recovering.failures == 0


async def lose(
    world: WebhookWorld, made: WebhookWithSecret, device_id: DeviceId, count: int, *, state: WebhookDeliveryState = GIVEN_UP
) -> list[int]:
    """Deliveries that the receiver did not get; returns their numbers, in the order of their events."""
    first = world.clock.now_ms() - 1_000_000
    lost = [
        a_delivery(
            made.webhook,
            device_id=device_id,
            state=state,
            attempts=6,
            created_ms=first + number,
            data=encode_payload({"type": "relay_changed", "number": number}),
        )
        for number in range(count)
    ]
    async with world.uow.write() as tx:
        await tx.deliveries.add_many(lost[::-1])
    return list(range(count))


async def created_ms(world: WebhookWorld, number: int) -> int:
    """When the event with this number was stored."""
    async with world.uow.read() as tx:
        stored = [one async for one in _deliveries(tx)]
    return sorted(one.created_ms for one in stored)[number]


async def _deliveries(tx: Any) -> AsyncIterator[WebhookDelivery]:
    for no in itertools.count(1):
        if (one := await tx.deliveries.get(no)) is None:
            return
        yield one


def numbers(receiver: Receiver) -> list[int]:
    return [request.envelope["data"]["number"] for request in receiver.requests]


async def ended(world: WebhookWorld) -> str:
    """What the event log says when a recovery has ended."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            page = await world.events.page(world.session(), limit=50)
            found = [event for event in page.events if event.kind == "webhook_recovery_ended"]
            if found:
                return found[0].description
            await asyncio.sleep(0.02)


async def test_what_was_lost_comes_again_in_the_order_of_the_events(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond()) as receiver:
        made = await world.webhook(receiver.url, device)
        lost = await lose(world, made, device.device_id, 30)
        assert await world.recoveries.start(world.session(), made.webhook.webhook_id, 0) == 30
        assert "30 delivered, 0 not" in await ended(world)
        assert numbers(receiver) == lost
        assert receiver.max_open == 1
        assert await world.recoveries.start(world.session(), made.webhook.webhook_id, 0) == 0
        attempts = await world.log.list_attempts(world.session(), made.webhook.webhook_id)
        assert all(attempt.succeeded and attempt.number == 1 for attempt in attempts)


async def test_only_events_since_then_come_and_cancelled_ones_too(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond()) as receiver:
        made = await world.webhook(receiver.url, device)
        await lose(world, made, device.device_id, 8, state=CANCELLED)
        fifth = await created_ms(world, 4)
        assert await world.recoveries.start(world.session(), made.webhook.webhook_id, fifth) == 4
        await ended(world)
        assert numbers(receiver) == [4, 5, 6, 7]


async def test_asked_for_again_while_it_runs_it_sends_nothing_twice_and_reaches_back_to_the_earlier_time(
    world: WebhookWorld,
) -> None:
    device = await world.device()
    async with webhook_receiver(respond()) as receiver:
        made = await world.webhook(receiver.url, device)
        lost = await lose(world, made, device.device_id, 20)
        await world.recoveries.start(world.session(), made.webhook.webhook_id, await created_ms(world, 10))
        await receiver.wait_for(2)
        await world.recoveries.start(world.session(), made.webhook.webhook_id, 0)
        assert "20 delivered, 0 not" in await ended(world)
        assert sorted(numbers(receiver)) == lost


async def test_it_ends_when_its_receiver_still_fails(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond(500)) as receiver:
        made = await world.webhook(receiver.url, device)
        await lose(world, made, device.device_id, 10)
        await world.recoveries.start(world.session(), made.webhook.webhook_id, 0)
        for number in range(1, MAX_FAILED_IN_ROW * 6 + 1):
            await world.attempts(made, number)
            world.later(seconds=90)
        assert f"its receiver fails: 0 delivered, {MAX_FAILED_IN_ROW} not" in await ended(world)
        assert set(numbers(receiver)) == set(range(MAX_FAILED_IN_ROW))


async def test_a_disabled_webhook_gets_nothing(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond(after_s=0.05)) as receiver:
        made = await world.webhook(receiver.url, device)
        await lose(world, made, device.device_id, 50)
        await world.recoveries.start(world.session(), made.webhook.webhook_id, 0)
        await receiver.wait_for(2)
        await world.webhooks.update(world.session(), made.webhook.webhook_id, enabled=False)
        assert "it was disabled" in await ended(world)
        with pytest.raises(Conflict, match="disabled"):
            await world.recoveries.start(world.session(), made.webhook.webhook_id, 0)


async def test_what_the_key_sees_no_longer_does_not_come(world: WebhookWorld) -> None:
    seen, unseen = await world.device(), await world.device()
    async with webhook_receiver(respond()) as receiver:
        made = await world.webhook(receiver.url, seen)
        await lose(world, made, unseen.device_id, 3)
        await world.recoveries.start(world.session(), made.webhook.webhook_id, 0)
        assert "0 delivered, 3 not" in await ended(world)
        assert not receiver.requests


async def test_a_backlog_of_one_delays_no_other(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond()) as busy, webhook_receiver(respond()) as other:
        made = await world.webhook(busy.url, device)
        await lose(world, made, device.device_id, 2_000)
        await world.recoveries.start(world.session(), made.webhook.webhook_id, 0)
        await busy.wait_for(2)
        await world.webhook(other.url, device)
        for count in range(1, 6):
            await world.switch(device)
            await other.wait_for(count)
        async with world.uow.read() as tx:
            pending = [no for no in range(1, 2_001) if (one := await tx.deliveries.get(no)) and one.state == "PENDING"]
        assert len(pending) <= 1


async def test_who_may_ask(world: WebhookWorld) -> None:
    made = await world.webhook("http://127.0.0.1:9/", await world.device())
    with pytest.raises(PermissionDenied):
        await world.recoveries.start(world.session(Role.MEMBER), made.webhook.webhook_id, 0)
    with pytest.raises(NotFound):
        await world.recoveries.start(world.session(), "whk_00000000000000000000", 0)
