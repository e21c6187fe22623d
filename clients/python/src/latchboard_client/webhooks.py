"""Checks a webhook request by its Standard Webhooks signature, and gives its event, in whichever format it was sent."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from latchboard_client.errors import VerificationError
from latchboard_client.events import UnknownEvent, parse_event
from latchboard_client.models import Event

TOLERANCE_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """`delivery_id` differs in each attempt; `event.event_id` is the same in all: use it to process an event once."""

    delivery_id: str
    sent_at: datetime
    event: Event | UnknownEvent


def verify(secret: str, body: bytes, headers: Mapping[str, str], *, tolerance_s: float = TOLERANCE_S) -> Delivery:
    """`body`: the received bytes, before any parsing. Raises VerificationError."""
    given = {name.lower(): value for name, value in headers.items()}
    message_id, sent_at = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
    if not sent_at.isdigit() or abs(time.time() - int(sent_at)) > tolerance_s:
        raise VerificationError(f"webhook-timestamp {sent_at!r} is missing or too far from now. Check this machine's clock.")
    expected = sign(secret, message_id, sent_at, body)
    signatures = given.get("webhook-signature", "").split()
    if not any(hmac.compare_digest(expected.encode(), one.encode()) for one in signatures):
        raise VerificationError("The signature does not fit. Check the secret, and that the body is verified as it was received.")
    sent = datetime.fromtimestamp(int(sent_at), UTC)
    return Delivery(delivery_id=given.get("x-service-delivery", ""), sent_at=sent, event=_event(body))


def sign(secret: str, message_id: str, sent_at: str, body: bytes) -> str:
    """The `webhook-signature` for these bytes. Raises VerificationError for a string that is no secret."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError as error:
        raise VerificationError("The secret is not `whsec_` and base64. Copy it from the response that created it.") from error
    digest = hmac.new(key, f"{message_id}.{sent_at}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def _event(body: bytes) -> Event | UnknownEvent:
    """Of the service's envelope, of a structured CloudEvent, or of a binary one, whose body is the event itself."""
    try:
        fields = json.loads(body)
        return parse_event(fields if "eventId" in fields else fields["data"])
    except (ValueError, KeyError, TypeError) as error:
        raise VerificationError(f"The signature fits, but the body is no event: {error}") from error
