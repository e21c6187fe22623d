"""What is sent of one event in each of the three forms."""

from __future__ import annotations

import json

import pytest

from domain.kernel.ids import AccountId, DeliveryId, DeviceId, EventId, WebhookId
from domain.webhooks import requests
from domain.webhooks.model import DeliveryAttempt, WebhookDelivery, WebhookDeliveryState, WebhookFormat, encode_payload

PUMP = DeviceId("dev_a")
NOW = 1_800_000_000_000
PAYLOAD = {"type": "telemetry", "value": 21.40, "name": "Küche 🔌", "eventId": "evt_a"}
DATA = encode_payload(PAYLOAD)
ATTRIBUTES = {
    "specversion": "1.0",
    "id": "evt_a",
    "source": "/accounts/acc_a",
    "type": "latchboard.telemetry",
    "time": "2027-01-15T08:00:00.000Z",
    "subject": "dev_a",
}


def attempt(started_ms: int = NOW + 5_000) -> DeliveryAttempt:
    return DeliveryAttempt(
        DeliveryId("whd_a"), 1, WebhookId("whk_a"), EventId("evt_a"), "telemetry", DeviceId("dev_a"), 2, created_ms=started_ms
    )


def delivery(device_id: DeviceId | None = PUMP) -> WebhookDelivery:
    state = WebhookDeliveryState.PENDING
    return WebhookDelivery(
        1, WebhookId("whk_a"), AccountId("acc_a"), device_id, EventId("evt_a"), "telemetry", DATA, state, 1, NOW, None, NOW
    )


def headers(webhook_format: WebhookFormat, of: WebhookDelivery) -> dict[str, str]:
    return dict(requests.build_headers(webhook_format, attempt(), of, "sha256=s", "v1,s"))


def test_the_envelope_holds_the_payload_byte_for_byte() -> None:
    body = requests.build_body(WebhookFormat.STANDARD, attempt(), delivery())
    assert DATA in body
    assert json.loads(body) == {"id": "whd_a", "type": "telemetry", "createdAt": "2027-01-15T08:00:05.000Z", "data": PAYLOAD}


def test_a_structured_cloud_event_holds_attributes_and_payload() -> None:
    body = requests.build_body(WebhookFormat.CLOUDEVENTS_STRUCTURED, attempt(), delivery())
    assert DATA in body
    assert json.loads(body) == ATTRIBUTES | {"datacontenttype": "application/json", "data": PAYLOAD}
    sent = headers(WebhookFormat.CLOUDEVENTS_STRUCTURED, delivery())
    assert sent["Content-Type"] == "application/cloudevents+json"
    assert not [name for name in sent if name.startswith("ce-")]


def test_a_binary_cloud_event_is_the_payload_with_attributes_in_headers() -> None:
    assert requests.build_body(WebhookFormat.CLOUDEVENTS_BINARY, attempt(), delivery()) == DATA
    sent = headers(WebhookFormat.CLOUDEVENTS_BINARY, delivery())
    assert sent["Content-Type"] == "application/json"
    assert {name[3:]: value for name, value in sent.items() if name.startswith("ce-")} == ATTRIBUTES
    assert "ce-subject" not in headers(WebhookFormat.CLOUDEVENTS_BINARY, delivery(device_id=None))


@pytest.mark.parametrize("webhook_format", WebhookFormat)
def test_every_form_has_the_signature_headers_and_ids(webhook_format: WebhookFormat) -> None:
    sent = headers(webhook_format, delivery())
    assert (sent["webhook-id"], sent["webhook-timestamp"], sent["webhook-signature"]) == ("evt_a", "1800000005", "v1,s")
    assert (sent["X-Service-Event"], sent["X-Service-Delivery"]) == ("telemetry", "whd_a")
    assert sent["X-Service-Signature"] == "sha256=s"
