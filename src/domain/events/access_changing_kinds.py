"""Which events change what somebody may see.

Webhooks and feed rely on a law: every change of access (of a grant, key, membership, project, device or webhook) emits an event
in its own transaction.
"""

from __future__ import annotations

from domain.events.model import PUBLIC_TYPES

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
