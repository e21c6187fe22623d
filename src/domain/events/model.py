"""The event log: append-only; `log_cursor` says what of it has been read.

The public types also go to the live feed, and to the webhooks that want them. All others are the account's audit trail.
Telemetry is public as well, but is stored with the readings, not in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.events.event_log_cursor import EventLogCursor
from domain.kernel.domain_events import JsonObject
from domain.kernel.fast_frozen_dataclass import fast_frozen, fast_replace
from domain.kernel.ids import AccountId, DeviceId, EventId

RELAY_CHANGED: Final = "relay_changed"
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
PUBLIC_TYPES = frozenset({*DEFAULT_TYPES, APPROVAL_REQUESTED, APPROVAL_DECIDED, COMMAND_RESULT, RULE_DISABLED, DEVICE_CLOCK_SKEW})


@fast_frozen
@dataclass(frozen=True, slots=True)
class Event:
    """A row of the log. `payload` is the complete payload for feed and webhooks; `position` is 0 until the row is stored.
    Positions are unique, and ascend among the events of one `writer` (see `log_cursor`)."""

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


with_position = fast_replace(Event, "position", "writer")


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """The events a feed client wants: empty `kinds` means all public ones; `device_id` None means every device it may see.
    `audit`: also every other event of the log, for sessions."""

    account_id: AccountId
    kinds: frozenset[str] = frozenset()
    device_id: DeviceId | None = None
    audit: bool = False

    @property
    def wants_readings(self) -> bool:
        return not self.kinds or TELEMETRY in self.kinds

    def matches(self, kind: str, device_id: DeviceId | None) -> bool:
        if self.device_id not in (None, device_id):
            return False
        if kind in self.kinds:
            return True
        if self.audit and kind != TELEMETRY:
            return True
        return not self.kinds and kind in PUBLIC_TYPES


@dataclass(frozen=True, slots=True)
class EventSearch:
    """More conditions on events, of which no counts are kept. `since_ms` inclusive, `until_ms` exclusive; `text` is part of the
    description or the device's name, whatever the case of a–z."""

    since_ms: int | None = None
    until_ms: int | None = None
    source: str | None = None
    text: str | None = None


NO_SEARCH: Final = EventSearch()


@dataclass(slots=True, eq=False)
class FeedFrame:
    """An event as sent over the feed, encoded once for all clients. `position` is 0 for telemetry, which is not in the log.

    `unclosed_json` is the JSON object without its last brace, so that a cursor can be appended. `websocket_frame` caches the
    transport's encoding with the cursor `websocket_frame_cursor`; the next client mostly needs the same cursor.
    `store_time_s`: all readings stored before it were published before this frame; 0 if that is not known.
    `log`: what has been published of the log, this event included; None for telemetry."""

    position: int
    writer: int
    kind: str
    device_id: DeviceId | None
    unclosed_json: bytes
    store_time_s: int = 0
    log: EventLogCursor | None = None
    websocket_frame: bytes = b""
    websocket_frame_cursor: tuple[EventLogCursor, int] | None = None


@dataclass(frozen=True, slots=True)
class ReadingAsEvent:
    device_id: DeviceId
    device_name: str
    at_ms: int
    metric: str
    value: float | None
    text: str | None
    unit: str | None
