"""A cursor is a position in the account's log, opaque to its holder; and which events say that somebody may now see more or less.

That the audit log itself tells of every change of access is a law the webhooks and the feed stand on: whoever changes a grant,
a key, a membership, a device or a webhook records it in the same transaction.
"""

from __future__ import annotations

from domain.events.model import PUBLIC_TYPES, Event
from domain.kernel.domain_events import DomainEvent, JsonObject
from domain.kernel.ids import EventId

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
_ACCESS_EVENT_PREFIXES = ("grant_", "key_", "member_", "project_", "webhook_", "device_", "credentials_")
"""New credentials bring a device to life and a revocation ends it, which those who show it must hear."""


def is_access_change(kind: str) -> bool:
    """Whether an event of this kind can change who may see what."""
    return kind not in PUBLIC_TYPES and kind.startswith(_ACCESS_EVENT_PREFIXES)


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
