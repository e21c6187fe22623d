"""The event log: append-only; a cursor (`cursors.py`) says what of it has been read.

The public types also go to the live feed, and to the webhooks that want them. All others are the account's audit trail.
Telemetry is public as well, but is stored with the readings, not in the log.

Webhooks and feed rely on a law: every change of access (of a grant, key, membership, project, device or webhook) emits an event
in its own transaction. `is_access_change` knows these events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.kernel.dataclasses import fast_frozen, fast_replace
from domain.kernel.domain_event import JsonObject
from domain.kernel.folding import fold
from domain.kernel.ids import AccountId, DeviceId, EventId

RELAY_CHANGED: Final = "relay_changed"
STATE_CHANGED: Final = "state_changed"
INPUT_CHANGED: Final = "input_changed"
TELEMETRY: Final = "telemetry"
DEVICE_ONLINE: Final = "device_online"
DEVICE_OFFLINE: Final = "device_offline"
SCHEDULE_FIRED: Final = "schedule_fired"

APPROVAL_REQUESTED: Final = "approval_requested"
APPROVAL_DECIDED: Final = "approval_decided"
COMMAND_RESULT: Final = "command_result"
RULE_DISABLED: Final = "rule_disabled"
DEVICE_CLOCK_SKEW: Final = "device_clock_skew"

DEFAULT_TYPES = (RELAY_CHANGED, TELEMETRY, DEVICE_ONLINE, DEVICE_OFFLINE, SCHEDULE_FIRED)
"""What a webhook receives that names no types."""
PUBLIC_TYPES = frozenset(
    {
        *DEFAULT_TYPES,
        STATE_CHANGED,
        INPUT_CHANGED,
        APPROVAL_REQUESTED,
        APPROVAL_DECIDED,
        COMMAND_RESULT,
        RULE_DISABLED,
        DEVICE_CLOCK_SKEW,
    }
)


@fast_frozen
@dataclass(frozen=True, slots=True)
class Event:
    """A row of the log. `payload` is the complete payload for feed and webhooks; `position` is 0 until the row is stored.
    Positions are unique, and ascend among the events of one `writer` (see `cursors.py`)."""

    position: int
    event_id: EventId
    account_id: AccountId
    device_id: DeviceId | None
    device_name: str | None
    kind: str
    description: str
    at_ms: int
    source: str
    address: str
    payload: JsonObject
    writer: int = 0

    @property
    def is_public(self) -> bool:
        return self.kind in PUBLIC_TYPES

    @property
    def folded_text(self) -> str | None:
        """What a search looks in, where case is more than that of a–z; else None."""
        text = f"{self.description} {self.device_name or ''}"
        return None if text.isascii() else fold(text)


with_position = fast_replace(Event, "position", "writer")


@dataclass(frozen=True, slots=True)
class EventSearch:
    """More conditions on events, of which no counts are kept. `since_ms` inclusive, `until_ms` exclusive; `text` is part of the
    description or the device's name, whatever its case."""

    since_ms: int | None = None
    until_ms: int | None = None
    source: str | None = None
    text: str | None = None


NO_SEARCH: Final = EventSearch()


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


_HEALTH_EVENTS = frozenset({"device_message_dropped", "device_clock_skew", "device_refused"})


def is_access_change(kind: str) -> bool:
    """Whether an event of this kind can change what somebody may see."""
    return kind not in PUBLIC_TYPES and kind not in _HEALTH_EVENTS and kind.startswith(_ACCESS_EVENT_PREFIXES)
