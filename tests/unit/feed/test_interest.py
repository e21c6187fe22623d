"""The engine watches exactly the devices that have a live subscriber which may see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.workers.due import WakeEvent
from app.workers.feed_interest import DevicesWithSubscribersWorker
from domain.events.feed_model import FeedFilter
from domain.feed.interest import DevicesWithSubscribersService
from support.waiting import TIMEOUT_S
from support.webhook_world import ACCOUNT, WebhookWorld

URL = "http://127.0.0.1:9/hook"


class FakeEngine:
    def __init__(self) -> None:
        self.watched: set[int] = set()

    def set_watched(self, device_no: int, on: bool) -> None:
        (self.watched.add if on else self.watched.discard)(device_no)


@pytest.fixture
async def world() -> WebhookWorld:
    return await WebhookWorld().populate()


def create_worker(world: WebhookWorld, engine: Any) -> DevicesWithSubscribersWorker:
    wake_event = WakeEvent()
    world.feed.on_filters_changed = wake_event.set
    return DevicesWithSubscribersWorker(
        watched_devices=DevicesWithSubscribersService(uow=world.uow, clock=world.clock),
        hub=world.feed,
        engine=engine,
        wake_event=wake_event,
    )


async def test_a_feed_client_makes_its_account_watched_until_it_disconnects(world: WebhookWorld) -> None:
    one, two = await world.device(), await world.device()
    engine = FakeEngine()
    worker = create_worker(world, engine)
    await worker.refresh()
    assert not engine.watched
    with world.feed.subscribe(FeedFilter(ACCOUNT)):
        await worker.refresh()
        assert engine.watched == {one.device_no, two.device_no}
    await worker.refresh()
    assert not engine.watched


async def test_a_filter_narrows_which_devices_are_watched(world: WebhookWorld) -> None:
    one, _ = await world.device(), await world.device()
    engine = FakeEngine()
    worker = create_worker(world, engine)
    with world.feed.subscribe(FeedFilter(ACCOUNT, device_id=one.device_id)):
        await worker.refresh()
        assert engine.watched == {one.device_no}
    with world.feed.subscribe(FeedFilter(ACCOUNT, frozenset({"relay_changed"}))):
        await worker.refresh()
        assert not engine.watched


async def test_a_webhook_makes_the_devices_that_its_key_can_see_watched(world: WebhookWorld) -> None:
    visible, _ = await world.device(), await world.device()
    created = await world.webhook(URL, visible)
    engine = FakeEngine()
    worker = create_worker(world, engine)
    await worker.refresh()
    assert engine.watched == {visible.device_no}
    await world.webhooks.update(world.session(), created.webhook.webhook_id, enabled=False)
    await worker.refresh()
    assert not engine.watched


async def test_a_changed_grant_wakes_the_worker(world: WebhookWorld) -> None:
    device = await world.device()
    created = await world.webhook(URL)
    engine = FakeEngine()
    running = asyncio.create_task(create_worker(world, engine).run())
    await world.grant(created.webhook.key_id, device)
    async with asyncio.timeout(TIMEOUT_S):
        while engine.watched != {device.device_no}:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])
