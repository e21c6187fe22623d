"""One append-only log per account, in one total order; a cursor is a position in it.

Five types are public: they also go to the live feed and to webhooks. All others are the account's audit trail.
Telemetry is public too, but lives in the readings, not here.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.kernel.facts import JsonObject
from domain.kernel.ids import AccountId, DeviceId, EventId

RELAY_CHANGED = "relay_changed"
TELEMETRY = "telemetry"
DEVICE_ONLINE = "device_online"
DEVICE_OFFLINE = "device_offline"
SCHEDULE_FIRED = "schedule_fired"

PUBLIC_TYPES = frozenset({RELAY_CHANGED, TELEMETRY, DEVICE_ONLINE, DEVICE_OFFLINE, SCHEDULE_FIRED})


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

    @property
    def is_public(self) -> bool:
        return self.kind in PUBLIC_TYPES
