"""From a domain event to a row of the log; and which events change access.

Webhooks and feed rely on a law: every change of access (of a grant, key, membership, project, device or webhook) emits an event
in its own transaction.
"""

from __future__ import annotations

import base64
import hashlib

from domain.events.model import PUBLIC_TYPES, Event
from domain.kernel.domain_events import DomainEvent, JsonObject
from domain.kernel.ids import DeviceId, EventId, IdPrefix

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
_READING_ID_BYTES = 15
"""24 characters: 120 bits."""
MAX_COUNTED_READINGS = 10_000
"""Readings have no counter: counting more of them would read the whole history for every page."""
_ACCESS_EVENT_PREFIXES = (
    "grant_",
    "key_",
    "member_",
    "project_",
    "group_",
    "webhook_",
    "device_",
    "credentials_",
    "session_",
    "password_",
)
"""`credentials_`: new credentials activate a device and a revocation ends it, which changes what clients display.
`session_`, `password_`: the feeds of sessions that ended close."""
_HEALTH_EVENTS = frozenset({"device_message_dropped", "device_clock_skew"})


def is_access_change(kind: str) -> bool:
    """Whether an event of this kind can change what somebody may see."""
    return kind not in PUBLIC_TYPES and kind not in _HEALTH_EVENTS and kind.startswith(_ACCESS_EVENT_PREFIXES)


def reading_event_id(device_id: DeviceId, at_ms: int, metric: str, value: float | None, text: str | None) -> EventId:
    """Derived from the reading, so that a message which is delivered twice is the same event to every receiver."""
    content = f"{device_id}\n{at_ms}\n{metric}\n{value!r}\n{text!r}".encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(content).digest()[:_READING_ID_BYTES]
    return EventId(f"{IdPrefix.EVENT}_{base64.b32encode(digest).decode().lower()}")


def to_event(event: DomainEvent, event_id: EventId, device_name: str | None) -> Event:
    """The row of the log for an event, not yet stored."""
    return Event(
        position=0,
        event_id=event_id,
        account_id=event.account_id,
        device_id=event.device_id,
        device_name=device_name,
        kind=event.kind,
        description=event.description,
        at_ms=event.at_ms,
        source=event.source,
        address=event.address,
        payload=public_payload(event, event_id) if event.kind in PUBLIC_TYPES else dict(event.data),
    )


def public_payload(event: DomainEvent, event_id: EventId) -> JsonObject:
    """The payload for feed and webhooks. Fields of the envelope override data of the same name."""
    return {
        **event.data,
        "type": event.kind,
        "eventId": event_id,
        "accountId": event.account_id,
        "deviceId": event.device_id,
        "timestamp": event.at_ms,
    }
