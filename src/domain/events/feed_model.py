"""What the live feed sends, and which of it a client wants."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from domain.events.cursors import EventLogCursor
from domain.events.model import PUBLIC_TYPES, TELEMETRY
from domain.kernel.cursors import Position
from domain.kernel.ids import AccountId, DeviceId, EventId, IdPrefix

_READING_ID_BYTES = 15
"""24 characters: 120 bits."""


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

    @property
    def event_id(self) -> EventId:
        return reading_event_id(self.device_id, self.at_ms, self.metric, self.value, self.text)

    @property
    def place(self) -> Position:
        """Its position among the readings of an account."""
        return self.at_ms, self.device_id, self.metric, self.event_id


def reading_event_id(device_id: DeviceId, at_ms: int, metric: str, value: float | None, text: str | None) -> EventId:
    """Derived from the reading, so that a message which is delivered twice is the same event to every receiver."""
    content = f"{device_id}\n{at_ms}\n{metric}\n{value!r}\n{text!r}".encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(content).digest()[:_READING_ID_BYTES]
    return EventId(f"{IdPrefix.EVENT}_{base64.b32encode(digest).decode().lower()}")
