"""A cursor is a position in the account's log, opaque to its holder; and which events say that somebody may now see more or less.

That the audit log itself tells of every change of access is a law the webhooks and the feed stand on: whoever changes a grant,
a key, a membership, a device or a webhook records it in the same transaction.
"""

from __future__ import annotations

import base64
import binascii

from domain.events.model import PUBLIC_TYPES, Event
from domain.kernel.domain_events import DomainEvent, JsonObject
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import EventId

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
_ACCESS_EVENT_PREFIXES = ("grant_", "key_", "member_", "project_", "webhook_", "device_", "credentials_")
"""New credentials bring a device to life and a revocation ends it, which those who show it must hear."""


def is_access_change(kind: str) -> bool:
    """Whether an event of this kind can change who may see what."""
    return kind not in PUBLIC_TYPES and kind.startswith(_ACCESS_EVENT_PREFIXES)


def encode_cursor(*numbers: int) -> str:
    """URL-safe text. The same numbers give the same text."""
    plain = ".".join(str(number) for number in numbers).encode()
    return base64.urlsafe_b64encode(b"e" + plain).decode().rstrip("=")


def decode_cursor(text: str, count: int = 1) -> tuple[int, ...]:
    """Raises Invalid for what `encode_cursor` did not write with `count` numbers."""
    fault = ValidationFailed.for_field("cursor", "is not one that we gave out. Leave it out to begin anew.")
    if not text.isascii() or len(text) > 128:
        raise fault
    try:
        plain = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise fault from None
    parts = plain[1:].split(".")
    if plain[:1] != "e" or len(parts) != count or not all(part.isdigit() and len(part) <= 18 for part in parts):
        raise fault
    return tuple(int(part) for part in parts)


def to_event(fact: DomainEvent, event_id: EventId, device_name: str | None) -> Event:
    """The log's row of a fact, not yet stored."""
    return Event(
        position=0,
        event_id=event_id,
        account_id=fact.account_id,
        device_id=fact.device_id,
        device_name=device_name,
        kind=fact.kind,
        description=fact.description,
        at_ms=fact.at_ms,
        source=fact.source,
        address=fact.address,
        payload=public_payload(fact, event_id) if fact.kind in PUBLIC_TYPES else dict(fact.data),
    )


def public_payload(fact: DomainEvent, event_id: EventId) -> JsonObject:
    """What feed and webhooks carry. The envelope's fields win over data of the same name."""
    return {
        **fact.data,
        "type": fact.kind,
        "eventId": event_id,
        "accountId": fact.account_id,
        "deviceId": fact.device_id,
        "timestamp": fact.at_ms,
    }
