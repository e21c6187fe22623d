"""Which devices are watched: those that somebody may hear of, and no others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.workers.feed_interest import FeedInterestWorker
from app.workers.wake_event import WakeEvent
from domain.events.model import FeedFilter
from domain.feed.interest import LiveSubscriptions
from support.webhook_world import ACCOUNT, WebhookWorld

URL = "http://127.0.0.1:9/hook"


class Engine:
    def __init__(self) -> None:
        self.watched: set[int] = set()

    def watch(self, device_no: int, on: bool) -> None:
        (self.watched.add if on else self.watched.discard)(device_no)


@pytest.fixture
async def world() -> WebhookWorld:
    return await WebhookWorld().populate()


def loop_of(world: WebhookWorld, engine: Any) -> FeedInterestWorker:
    bell = WakeEvent()
    world.feed._on_filters_changed = bell.set
    return FeedInterestWorker(
        watching=LiveSubscriptions(uow=world.uow, clock=world.clock), hub=world.feed, engine=engine, bell=bell
    )


async def test_a_feed_client_has_its_account_watched_until_it_leaves(world: WebhookWorld) -> None:
    one, two = await world.device(), await world.device()
    engine = Engine()
    loop = loop_of(world, engine)
    await loop.refresh()
    assert not engine.watched
    with world.feed.subscribe(FeedFilter(ACCOUNT)):
        await loop.refresh()
        assert engine.watched == {one.device_no, two.device_no}
    await loop.refresh()
    assert not engine.watched


async def test_filters_narrow_what_is_watched(world: WebhookWorld) -> None:
    one, _ = await world.device(), await world.device()
    engine = Engine()
    loop = loop_of(world, engine)
    with world.feed.subscribe(FeedFilter(ACCOUNT, device_id=one.device_id)):
        await loop.refresh()
        assert engine.watched == {one.device_no}
    with world.feed.subscribe(FeedFilter(ACCOUNT, frozenset({"relay_changed"}))):
        await loop.refresh()
        assert not engine.watched


async def test_a_webhook_has_watched_what_its_key_sees(world: WebhookWorld) -> None:
    seen, _ = await world.device(), await world.device()
    made = await world.webhook(URL, seen)
    engine = Engine()
    loop = loop_of(world, engine)
    await loop.refresh()
    assert engine.watched == {seen.device_no}
    await world.webhooks.update(world.session(), made.webhook.webhook_id, enabled=False)
    await loop.refresh()
    assert not engine.watched


async def test_the_loop_looks_again_when_access_changes(world: WebhookWorld) -> None:
    device = await world.device()
    made = await world.webhook(URL)
    engine = Engine()
    running = asyncio.create_task(loop_of(world, engine).run())
    await world.grant(made.webhook.key_id, device)
    async with asyncio.timeout(10):
        while engine.watched != {device.device_no}:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])
