"""One append-only log per account, in one total order; a cursor is a position in it.

Five types are public: they also go to the live feed and to webhooks. All others are the account's audit trail.
Telemetry is public too, but lives in the readings, not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.kernel.domain_events import JsonObject
from domain.kernel.fast_frozen import fast_frozen
from domain.kernel.ids import AccountId, DeviceId, EventId

RELAY_CHANGED: Final = "relay_changed"
TELEMETRY: Final = "telemetry"
DEVICE_ONLINE: Final = "device_online"
DEVICE_OFFLINE: Final = "device_offline"
SCHEDULE_FIRED: Final = "schedule_fired"

PUBLIC_TYPES = frozenset({RELAY_CHANGED, TELEMETRY, DEVICE_ONLINE, DEVICE_OFFLINE, SCHEDULE_FIRED})


@fast_frozen
@dataclass(frozen=True, slots=True)
class Event:
    """A row of the log. `payload` is what feed and webhooks carry, whole; `position` is 0 until it is stored."""

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

    def with_position(self, position: int) -> Event:
        """The same, stored there. Spelled out, because it is done for every event, and `replace` takes five times as long."""
        return Event(
            position,
            self.event_id,
            self.account_id,
            self.device_id,
            self.device_name,
            self.kind,
            self.description,
            self.at_ms,
            self.source,
            self.address,
            self.payload,
        )

    @property
    def is_public(self) -> bool:
        return self.kind in PUBLIC_TYPES


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """What a feed client asked for; an empty `kinds` means all, `device_id` None every device it may see."""

    account_id: AccountId
    kinds: frozenset[str] = frozenset()
    device_id: DeviceId | None = None

    def matches(self, kind: str, device_id: DeviceId | None) -> bool:
        return (not self.kinds or kind in self.kinds) and self.device_id in (None, device_id)


@dataclass(slots=True, eq=False)
class FeedFrame:
    """An event as it goes over the feed, encoded once for all clients. `position` is 0 for telemetry, which is not in the log.

    `head` is the JSON object without its last brace, so that a cursor can be put behind it. `framed` is what the transport made
    of it with the cursor of `framed_for`, kept for the next client, whose cursor is mostly the same."""

    position: int
    kind: str
    device_id: DeviceId | None
    unclosed_json: bytes
    websocket_frame: bytes = b""
    websocket_frame_cursor: int = -1


@dataclass(frozen=True, slots=True)
class TelemetryRecord:
    device_id: DeviceId
    device_name: str
    at_ms: int
    metric: str
    value: float | None
    text: str | None
    unit: str | None
