"""A subscription takes effect before its answer: what a device sends right after the answer is delivered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from support.device import Device, create_device
from support.service import ApiClient, Service
from support.transports import ALL_DATABASES, database_settings
from support.waiting import TIMEOUT_S
from support.webhook_receiver import Receiver, respond, webhook_receiver

ROUNDS = 4


@pytest.fixture(scope="module", params=ALL_DATABASES)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service"), LATCHBOARD_INGEST_LIMIT=0, **database_settings(request.param)) as service:
        yield service


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with webhook_receiver(respond(200)) as one:
        yield one


async def key_with_grant(owner: ApiClient, device: Device | None) -> dict[str, Any]:
    key: dict[str, Any] = await owner.post("/keys", {"name": "Robot"}, expect=201)
    if device is not None:
        await grant(owner, key, device)
    return key


async def grant(owner: ApiClient, key: dict[str, Any], device: Device) -> None:
    await owner.post(f"{device.path}/grants", {"apiKeyId": key["keyId"], "commands": ["*"], "scope": "READ"}, expect=201)


async def received(receiver: Receiver, device: Device) -> list[float]:
    """The values of the device that the receiver has got, once there is one."""

    def values() -> list[float]:
        bodies = [request.envelope["data"] for request in receiver.requests]
        return [body["value"] for body in bodies if body["deviceId"] == device.device_id and body["type"] == "telemetry"]

    async with asyncio.timeout(TIMEOUT_S):
        while not values():
            await asyncio.sleep(0.02)
    return values()


async def test_a_reading_right_after_a_new_webhook_is_delivered(service: Service, owner: ApiClient, receiver: Receiver) -> None:
    for _ in range(ROUNDS):
        meter = await create_device(owner)
        key = await key_with_grant(owner, meter)
        async with meter.online(service) as line:
            await line.report(value=0)
            await owner.post("/webhooks", {"keyId": key["keyId"], "url": receiver.url}, expect=201)
            await line.report(value=1)
            await line.report(value=2)
            assert (await received(receiver, meter))[0] == 1


async def test_a_reading_right_after_a_new_grant_is_delivered(service: Service, owner: ApiClient, receiver: Receiver) -> None:
    key = await key_with_grant(owner, None)
    await owner.post("/webhooks", {"keyId": key["keyId"], "url": receiver.url}, expect=201)
    async with service.api(**{"X-Api-Key": key["key"]}) as robot, service.feed(robot) as feed:
        for _ in range(ROUNDS):
            meter = await create_device(owner)
            async with meter.online(service) as line:
                await line.report(value=0)
                await grant(owner, key, meter)
                await line.report(value=1)
                await line.report(value=2)
                assert (await received(receiver, meter))[0] == 1
                assert (await feed.wait_for("telemetry", deviceId=meter.device_id))["value"] == 1


@pytest.mark.parametrize("by", ["session", "key"])
async def test_a_reading_right_after_the_first_message_of_the_feed_is_sent(service: Service, owner: ApiClient, by: str) -> None:
    for _ in range(ROUNDS):
        meter = await create_device(owner)
        key = await key_with_grant(owner, meter)
        async with meter.online(service) as line, service.api(**{"X-Api-Key": key["key"]}) as robot:
            await line.report(value=0)
            async with service.feed(robot if by == "key" else owner) as feed:
                await line.report(value=1)
                await line.report(value=2)
                assert (await feed.wait_for("telemetry", deviceId=meter.device_id))["value"] == 1


async def test_a_message_that_a_device_sends_twice_is_one_event(service: Service, owner: ApiClient, receiver: Receiver) -> None:
    meter = await create_device(owner)
    key = await key_with_grant(owner, meter)
    await owner.post("/webhooks", {"keyId": key["keyId"], "url": receiver.url}, expect=201)
    sent_ms = int(time.time() * 1000)
    async with meter.online(service) as line, service.feed(owner, f"?types=telemetry&deviceId={meter.device_id}") as feed:
        for _ in range(3):
            await line.publish("telemetry", {"ts": sent_ms, "m": {"value": 1}})
        await line.publish("telemetry", {"ts": sent_ms + 1, "m": {"value": 2}})
        last = await feed.wait_for("telemetry", value=2)
    assert [event["value"] for event in feed.received if event["type"] == "telemetry"] == [1, 2]
    async with asyncio.timeout(TIMEOUT_S):
        while 2 not in (values := await received(receiver, meter)):
            await asyncio.sleep(0.02)
    assert values == [1, 2]
    log = await owner.get("/events", params={"type": "telemetry", "deviceId": meter.device_id, "limit": 1})
    assert log["data"][0]["id"] == last["eventId"]
