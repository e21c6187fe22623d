"""Real deliveries in both CloudEvents modes, parsed by the CloudEvents SDK and checked by the Standard Webhooks library; from both
couriers."""

from __future__ import annotations

from pathlib import Path

import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks.webhooks import Webhook

from latchboard_client import models, webhooks
from support.device import Device, create_device
from support.service import ApiClient, Service
from support.webhook_receiver import ReceivedRequest, respond, webhook_receiver

FORMATS = ("cloudevents-structured", "cloudevents-binary")


@pytest.mark.parametrize("engine", ["native", "reference"])
async def test_deliveries_are_cloud_events(tmp_path: Path, engine: str) -> None:
    with Service(tmp_path, LATCHBOARD_ENGINE=engine) as service:
        async with service.api() as owner:
            pump = await create_device(owner)
            key = await owner.post("/keys", {"name": "Robot"}, expect=201)
            await owner.post(f"{pump.path}/grants", {"apiKeyId": key["keyId"], "commands": ["*"]}, expect=201)
            for webhook_format in FORMATS:
                await one_delivery(service, owner, pump, key["keyId"], webhook_format)


async def one_delivery(service: Service, owner: ApiClient, pump: Device, key_id: str, webhook_format: str) -> None:
    async with webhook_receiver(respond()) as receiver:
        wanted = {"keyId": key_id, "url": receiver.url, "types": ["relay_changed"], "format": webhook_format}
        hook = await owner.post("/webhooks", wanted, expect=201)
        [listed] = [one for one in await owner.get("/webhooks") if one["webhookId"] == hook["webhookId"]]
        assert listed["format"] == webhook_format
        async with pump.online(service) as line:
            await line.press_button(webhook_format == FORMATS[0])
            [request] = await receiver.wait_for(1)
        await owner.post(f"/webhooks/{hook['webhookId']}/ping")
        ping = parsed((await receiver.wait_for(2))[1])
        await owner.delete(f"/webhooks/{hook['webhookId']}")

    Webhook(hook["secret"]).verify(request.body, request.headers)
    assert request.signed_with(hook["secret"])
    event = parsed(request)
    data = event.get_data()
    assert isinstance(data, dict)
    assert (event.get_id(), event.get_type(), event.get_subject()) == (
        data["eventId"],
        "latchboard.relay_changed",
        pump.device_id,
    )
    assert (event.get_specversion(), event.get_source()) == ("1.0", f"/accounts/{data['accountId']}")
    moment = event.get_time()
    assert moment is not None
    assert abs(moment.timestamp() * 1000 - data["timestamp"]) < 60_000
    assert (data["type"], data["relay"]) == ("relay_changed", "ON" if webhook_format == FORMATS[0] else "OFF")
    assert request.headers["webhook-id"] == event.get_id()
    delivery = webhooks.verify(hook["secret"], request.body, request.headers)
    assert isinstance(delivery.event, models.RelayChangedEvent)
    assert delivery.event.event_id == event.get_id()
    assert (ping.get_type(), ping.get_subject()) == ("latchboard.ping", None)


def parsed(request: ReceivedRequest) -> BaseCloudEvent:
    return from_http_event(HTTPMessage(headers=request.headers, body=request.body))


async def test_the_format_can_be_changed_and_an_unknown_one_is_refused(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{pump.path}/grants", {"apiKeyId": key["keyId"], "commands": ["*"]}, expect=201)
    async with webhook_receiver(respond()) as receiver:
        hook = await owner.post("/webhooks", {"keyId": key["keyId"], "url": receiver.url, "types": ["relay_changed"]}, expect=201)
        path = f"/webhooks/{hook['webhookId']}"
        refused = await owner.call("PATCH", path, {"format": "xml"}, 400)
        assert refused["details"][0]["field"] == "format"
        for count, (webhook_format, content_type) in enumerate(
            [
                ("standard", "application/json"),
                ("cloudevents-structured", "application/cloudevents+json"),
                ("cloudevents-binary", "application/json"),
                ("standard", "application/json"),
            ],
            start=1,
        ):
            await owner.patch(path, {"format": webhook_format})
            await owner.post(f"{path}/ping")
            request = (await receiver.wait_for(count))[-1]
            assert request.headers["content-type"] == content_type
            assert ("ce-id" in request.headers) == (webhook_format == "cloudevents-binary")
            assert request.signed_with(hook["secret"])
