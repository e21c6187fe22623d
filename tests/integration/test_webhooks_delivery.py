"""What is sent to a receiver, and what each kind of answer leads to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook as StandardWebhook

from domain.events.model import Event
from domain.kernel.errors import Conflict, PermissionDenied
from domain.webhooks.model import WebhookDeliveryState
from domain.webhooks.queues import EndpointQueues
from support.storage import STORAGES, a_delivery
from support.webhook_receiver import in_sequence, never_respond, reset, respond, respond_once_open, webhook_receiver
from support.webhook_world import ACCOUNT, WebhookWorld, webhook_world


@pytest.fixture(params=STORAGES)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[WebhookWorld]:
    async with webhook_world(request.param, tmp_path) as world, world.delivering():
        yield world


async def test_a_delivery_carries_the_event_unchanged_in_an_envelope_signed_both_ways(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond()) as receiver:
        made = await world.webhook(receiver.url, device)
        await world.switch(device)
        [got] = await receiver.wait_for(1)
    envelope = got.envelope
    assert list(envelope) == ["id", "type", "createdAt", "data"]
    assert envelope["id"] == got.headers["x-service-delivery"]
    assert envelope["id"].startswith("whd_")
    assert envelope["type"] == got.headers["x-service-event"] == envelope["data"]["type"] == "relay_changed"
    assert envelope["createdAt"].endswith("Z")
    assert len(envelope["createdAt"]) == 24
    assert envelope["data"]["deviceId"] == device.device_id
    assert envelope["data"]["accountId"] == ACCOUNT
    assert envelope["data"]["relay"] == "ON"
    assert envelope["data"]["triggeredBy"] == "device"
    assert isinstance(envelope["data"]["timestamp"], int)
    assert got.headers["content-type"] == "application/json"
    assert got.headers["webhook-id"] == envelope["data"]["eventId"]
    assert got.signed_with(made.secret)
    StandardWebhook(made.secret).verify(got.body, got.headers)


async def test_a_failed_delivery_is_tried_six_times_with_growing_pauses_and_an_id_of_its_own_each(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond(500)) as receiver:
        made = await world.webhook(receiver.url, device)
        await world.switch(device)
        for number, pause_s in enumerate((5, 10, 20, 40, 80), start=1):
            attempts = await world.attempts(made, number)
            assert attempts[-1].next_attempt_ms is not None
            assert attempts[-1].finished_ms is not None
            assert attempts[-1].next_attempt_ms - attempts[-1].finished_ms == pause_s * 1000
            world.later(seconds=pause_s)
        attempts = await world.attempts(made, 6)
        world.later(seconds=3600)
        await asyncio.sleep(0.1)
        assert len(receiver.requests) == 6
    assert [attempt.number for attempt in attempts] == [1, 2, 3, 4, 5, 6]
    assert {attempt.status_code for attempt in attempts} == {500}
    assert attempts[-1].next_attempt_ms is None
    assert len({got.envelope["id"] for got in receiver.requests}) == 6
    assert len({got.headers["webhook-id"] for got in receiver.requests}) == 1
    assert all(got.signed_with(made.secret) for got in receiver.requests)


async def test_a_success_ends_the_retries(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(in_sequence(reset(), respond(204, body=b""))) as receiver:
        made = await world.webhook(receiver.url, device)
        await world.switch(device)
        first = await world.attempts(made, 1)
        assert first[0].error == "The receiver reset the connection."
        world.later(seconds=5)
        attempts = await world.attempts(made, 2)
        assert attempts[1].succeeded
        world.later(seconds=100)
        await asyncio.sleep(0.05)
        assert len(receiver.requests) == 2


async def test_a_redirect_is_a_failure_and_is_not_followed(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond()) as other, webhook_receiver(respond(302, f"Location: {other.url}\r\n")) as receiver:
        made = await world.webhook(receiver.url, device)
        await world.switch(device)
        [attempt] = await world.attempts(made, 1)
        assert not other.requests
    assert attempt.status_code == 302
    assert not attempt.succeeded
    assert "not followed" in str(attempt.error)


async def test_retry_after_lengthens_a_pause_and_never_shortens_it(world: WebhookWorld) -> None:
    device = await world.device()
    polite = in_sequence(respond(429, "Retry-After: 60\r\n"), respond(429, "Retry-After: 1\r\n"))
    async with webhook_receiver(polite) as receiver:
        made = await world.webhook(receiver.url, device)
        await world.switch(device)
        [first] = await world.attempts(made, 1)
        assert first.next_attempt_ms is not None
        assert first.finished_ms is not None
        assert first.next_attempt_ms - first.finished_ms == 60_000
        world.later(seconds=60)
        second = (await world.attempts(made, 2))[1]
        assert second.next_attempt_ms is not None
        assert second.finished_ms is not None
        assert second.next_attempt_ms - second.finished_ms == 10_000


async def test_410_disables_the_webhook_discards_pending_deliveries_and_is_logged(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(in_sequence(respond(500), respond(410))) as receiver:
        made = await world.webhook(receiver.url, device)
        await world.switch(device)
        await world.attempts(made, 1)
        await world.switch(device, "OFF")
        await world.attempts(made, 2)
        [stored] = await world.webhooks.list(world.session())
        assert not stored.enabled
        assert "410" in str(stored.disabled_reason)
        world.later(seconds=200)
        await world.switch(device)
        await asyncio.sleep(0.05)
        assert len(receiver.requests) == 2
    page = await world.events.page(world.session(), kind="webhook_disabled")
    assert len(page.events) == 1
    assert not await states(world, WebhookDeliveryState.PENDING)


async def test_five_days_without_a_success_disable_the_webhook_and_enabling_it_begins_anew(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond(503)) as receiver:
        made = await world.webhook(receiver.url, device)
        await world.switch(device)
        await world.attempts(made, 1)
        world.later(seconds=5 * 86_400)
        await world.attempts(made, 2)
        [stored] = await world.webhooks.list(world.session())
        assert not stored.enabled
        assert "5 days" in str(stored.disabled_reason)
        await world.webhooks.update(world.session(), stored.webhook_id, enabled=True)
        [stored] = await world.webhooks.list(world.session())
        assert stored.enabled
        assert stored.disabled_reason is None
        await world.switch(device)
        await receiver.wait_for(3)
        [stored] = await world.webhooks.list(world.session())
        assert stored.enabled


async def test_a_rotated_secret_signs_nothing_more_pending_retries_included(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond(500)) as receiver:
        made = await world.webhook(receiver.url, device)
        await world.switch(device)
        await world.attempts(made, 1)
        rotated = await world.webhooks.rotate_secret(world.session(), made.webhook.webhook_id)
        world.later(seconds=5)
        got = await receiver.wait_for(2)
    assert got[0].signed_with(made.secret)
    assert got[1].signed_with(rotated.secret)
    assert rotated.secret != made.secret


async def test_an_attempt_under_way_is_cut_by_a_rotation_and_made_again_with_the_new_secret(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(in_sequence(never_respond(), respond())) as receiver:
        made = await world.webhook(receiver.url, device)
        await world.switch(device)
        await receiver.wait_for(1)
        rotated = await world.webhooks.rotate_secret(world.session(), made.webhook.webhook_id)
        got = await receiver.wait_for(2)
        attempts = await world.attempts(made, 2)
    assert got[1].signed_with(rotated.secret)
    assert [attempt.succeeded for attempt in attempts] == [False, True]
    assert [attempt.number for attempt in attempts] == [1, 1]


async def test_a_grant_that_goes_between_two_attempts_stops_the_second(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond(500)) as receiver:
        key_id = await world.key()
        grant = await world.grant(key_id, device)
        made = await world.webhooks.create(world.session(), key_id=key_id, url=receiver.url)
        await world.switch(device)
        await world.attempts(made, 1)
        await world.revoke(grant)
        world.later(seconds=5)
        while not await states(world, WebhookDeliveryState.CANCELLED):
            await asyncio.sleep(0.01)
        assert len(receiver.requests) == 1


@pytest.mark.parametrize("change", ["disable", "delete"])
async def test_disabling_or_deleting_a_webhook_stops_its_pending_retries(world: WebhookWorld, change: str) -> None:
    device = await world.device()
    async with webhook_receiver(respond(500)) as receiver:
        made = await world.webhook(receiver.url, device)
        await world.switch(device)
        await world.attempts(made, 1)
        if change == "disable":
            await world.webhooks.update(world.session(), made.webhook.webhook_id, enabled=False)
        else:
            await world.webhooks.delete(world.session(), made.webhook.webhook_id)
        world.later(seconds=5)
        await world.switch(device)
        await asyncio.sleep(0.1)
        assert len(receiver.requests) == 1


async def test_only_webhooks_whose_key_may_read_the_device_get_a_delivery(world: WebhookWorld) -> None:
    seen, hidden = await world.device(), await world.device()
    async with (
        webhook_receiver(respond()) as one,
        webhook_receiver(respond()) as whole_project,
        webhook_receiver(respond()) as none,
    ):
        await world.webhook(one.url, seen)
        await world.webhook(whole_project.url, project=True)
        await world.webhook(none.url)
        await world.switch(hidden)
        await world.switch(seen)
        await whole_project.wait_for(2)
        await one.wait_for(1)
        await asyncio.sleep(0.05)
        assert [got.envelope["data"]["deviceId"] for got in one.requests] == [seen.device_id]
        assert not none.requests


async def test_a_grant_given_in_between_counts_from_the_next_event_on(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond()) as receiver:
        key_id = await world.key()
        await world.webhooks.create(world.session(), key_id=key_id, url=receiver.url)
        await world.switch(device, "ON")
        await world.grant(key_id, device)
        await world.switch(device, "OFF")
        [got] = await receiver.wait_for(1)
    assert got.envelope["data"]["relay"] == "OFF"


async def test_a_ping_and_a_redelivery_answer_with_the_id_of_the_attempt(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond()) as receiver:
        made = await world.webhook(receiver.url, device)
        session, webhook_id = world.session(), made.webhook.webhook_id
        pinged = await world.log.ping(session, webhook_id)
        [got] = await receiver.wait_for(1)
        assert got.envelope["id"] == pinged
        assert got.envelope["type"] == "ping"
        await world.switch(device)
        got = (await receiver.wait_for(2))[1]
        again = await world.log.redeliver(session, webhook_id, got.envelope["id"])
        third = (await receiver.wait_for(3))[2]
        assert third.envelope["id"] == again != got.envelope["id"]
        assert third.envelope["data"] == got.envelope["data"]
        await world.attempts(made, 3)
        await world.webhooks.update(session, webhook_id, enabled=False)
        with pytest.raises(Conflict):
            await world.log.ping(session, webhook_id)


async def test_a_redelivery_needs_the_grant_that_the_delivery_needed(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond()) as receiver:
        key_id = await world.key()
        grant = await world.grant(key_id, device)
        made = await world.webhooks.create(world.session(), key_id=key_id, url=receiver.url)
        await world.switch(device)
        [attempt] = await world.attempts(made, 1)
        await world.revoke(grant)
        with pytest.raises(PermissionDenied):
            await world.log.redeliver(world.session(), made.webhook.webhook_id, attempt.delivery_id)


async def test_the_log_shows_the_newest_fifty_attempts(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond()) as receiver:
        made = await world.webhook(receiver.url, device)
        for _ in range(60):
            await world.switch(device)
        await receiver.wait_for(60)
        attempts = await world.attempts(made, 50)
        assert len(attempts) == 50


async def test_no_more_than_four_deliveries_of_one_webhook_are_under_way_at_once(world: WebhookWorld) -> None:
    device = await world.device()
    async with webhook_receiver(respond_once_open(4)) as receiver:
        await world.webhook(receiver.url, device)
        async with world.uow.write() as tx:
            for _ in range(40):
                tx.emit(world.domain_event("relay_changed", device.device_id))
        await receiver.wait_for(40)
        assert receiver.max_open == 4


async def test_a_dead_receiver_with_a_backlog_delays_no_other() -> None:
    world = await WebhookWorld(send_queues=EndpointQueues(max_in_flight=8)).populate()
    device = await world.device()
    async with world.delivering(), webhook_receiver(never_respond()) as dead, webhook_receiver(respond()) as healthy:
        await world.webhook(dead.url, device)
        await world.webhook(healthy.url, device)
        for _ in range(300):
            await world.switch(device)
        await healthy.wait_for(300)
        assert dead.max_open == 4


async def test_what_was_under_way_when_the_process_died_is_sent_again_after_its_lease(world: WebhookWorld) -> None:
    device = await world.device()
    made = await world.webhook("http://127.0.0.1:9/", device)
    async with webhook_receiver(respond()) as receiver:
        await world.webhooks.update(world.session(), made.webhook.webhook_id, url=receiver.url)
        now_ms = world.clock.now_ms()
        pending = a_delivery(made.webhook, device_id=device.device_id, due_ms=now_ms)
        async with world.uow.write() as tx:  # a worker claims, and is never heard of again
            await tx.deliveries.add_many([pending])
            await tx.deliveries.claim(now_ms, now_ms + 30_000, 10)
        await asyncio.sleep(0.05)
        assert not receiver.requests
        world.later(seconds=31)
        await receiver.wait_for(1)


async def test_telemetry_goes_to_webhooks_though_it_is_not_in_the_log(world: WebhookWorld) -> None:
    device = await world.device()
    payload = {"type": "telemetry", "deviceId": device.device_id, "metric": "temperature", "value": 21.5}
    event = Event(0, "evt_x", ACCOUNT, device.device_id, "Pump", "telemetry", "", 1, "device", "", payload)  # type: ignore[arg-type]
    async with webhook_receiver(respond()) as receiver:
        await world.webhook(receiver.url, device)
        async with world.uow.write() as tx:
            await world.recorder.publish_transient(tx, [event])
        [got] = await receiver.wait_for(1)
    assert got.envelope["data"] == payload


async def states(world: WebhookWorld, state: WebhookDeliveryState) -> list[int]:
    numbers = []
    async with world.uow.read() as tx:
        for no in range(1, 500):
            delivery = await tx.deliveries.get(no)
            if delivery is not None and delivery.state is state:
                numbers.append(no)
    return numbers
