"""The log: what is written for an event, who hears of it and when, and cursors."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from adapters.feed_hub import InProcessFeedHub
from domain.events.feed_model import FeedFilter
from domain.events.model import PUBLIC_TYPES, Event, EventSearch, is_access_change
from domain.kernel.errors import NotFound
from domain.kernel.ids import DeviceId
from support.webhook_world import ACCOUNT, WebhookWorld


def test_changes_of_access_are_distinguished_from_other_events() -> None:
    for kind in ("grant_created", "key_deleted", "member_changed", "device_updated", "webhook_updated", "project_deleted"):
        assert is_access_change(kind), kind
    for kind in (*PUBLIC_TYPES, "command_sent", "login_failed"):
        assert not is_access_change(kind), kind


def test_a_feed_filter_without_conditions_matches_everything() -> None:
    assert FeedFilter(ACCOUNT).matches("telemetry", None)
    assert not FeedFilter(ACCOUNT, frozenset({"telemetry"})).matches("relay_changed", None)
    assert not FeedFilter(ACCOUNT, device_id=DeviceId("dev_a")).matches("telemetry", DeviceId("dev_b"))


def test_a_filter_with_audit_matches_all_of_the_log_and_telemetry_only_on_request() -> None:
    kinds = frozenset({"relay_changed"})
    assert FeedFilter(ACCOUNT, kinds, audit=True).matches("grant_created", None)
    assert FeedFilter(ACCOUNT, kinds, audit=True).matches("device_online", None)
    assert not FeedFilter(ACCOUNT, kinds, audit=True).matches("telemetry", None)
    assert not FeedFilter(ACCOUNT).matches("grant_created", None)


class RecordingPublisher:
    def __init__(self) -> None:
        self.messages: list[Event] = []

    def publish(self, event: Event) -> None:
        self.messages.append(event)


def test_an_event_is_encoded_once_for_all_subscribers(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Any] = []
    monkeypatch.setattr("adapters.feed_hub._encode_json", lambda payload: encoded.append(payload) or b"{}")
    feed, event = InProcessFeedHub(), Event(1, "evt_a", ACCOUNT, None, None, "relay_changed", "", 1, "", "", {})  # type: ignore[arg-type]
    with contextlib.ExitStack() as stack:
        received = [stack.enter_context(feed.subscribe(FeedFilter(ACCOUNT))) for _ in range(3)]
        feed.publish(event)
        frames = [frame for one in received for frame in one.drain()]
    assert len(encoded) == 1
    assert [frame is frames[0] for frame in frames] == [True] * 3


@pytest.fixture
async def world() -> WebhookWorld:
    return await WebhookWorld().populate()


async def test_the_feed_gets_an_event_only_after_the_commit(world: WebhookWorld) -> None:
    listener = RecordingPublisher()
    world.recorder.feed = listener
    device = await world.device()
    listener.messages.clear()
    async with world.uow.write() as tx:
        tx.emit(world.domain_event("relay_changed", device.device_id, relay="ON"))
        assert not listener.messages
    [event] = listener.messages
    assert event.position > 0
    assert event.device_name == "Pump"
    assert event.payload == {
        "type": "relay_changed",
        "eventId": event.event_id,
        "accountId": ACCOUNT,
        "deviceId": device.device_id,
        "timestamp": event.at_ms,
        "relay": "ON",
    }


async def test_a_change_that_is_rolled_back_emits_nothing(world: WebhookWorld) -> None:
    listener = RecordingPublisher()
    world.recorder.feed = listener
    with contextlib.suppress(RuntimeError):
        async with world.uow.write() as tx:
            tx.emit(world.domain_event("relay_changed"))
            raise RuntimeError
    assert not listener.messages
    assert not (await world.events.page(world.session())).events


async def test_a_device_log_has_only_its_events_newest_first(world: WebhookWorld) -> None:
    one, two = await world.device(), await world.device()
    await world.switch(one)
    await world.switch(two)
    await world.switch(one)
    found = await world.events.list_by_device(world.session(), one.device_id)
    assert [record.kind for record in found] == ["relay_changed", "relay_changed", "device_registered"]
    before = EventSearch(until_ms=found[-1].at_ms)
    earlier = await world.events.list_by_device(world.session(), one.device_id, span=before)
    assert not earlier
    with pytest.raises(NotFound):
        await world.events.list_by_device(world.session(), "dev_00000000000000000000")


async def test_the_total_counts_only_matching_events(world: WebhookWorld) -> None:
    one, two = await world.device(), await world.device()
    for _ in range(3):
        await world.switch(one)
    await world.switch(two)
    page = await world.events.page(world.session(), kind="relay_changed", device_id=one.device_id, limit=2)
    assert (page.total, page.has_more, len(page.events)) == (3, True, 2)
