"""Events of the live feed and of webhooks, and the state of a feed between two connections."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from latchboard_client.codec import decode
from latchboard_client.errors import ApiError, ForbiddenError, InvalidRequestError, UnauthenticatedError
from latchboard_client.models import Event

REMEMBERED_IDS: Final = 20_000
FINAL_CLOSES: dict[int, tuple[type[ApiError], int, str]] = {
    4001: (UnauthenticatedError, 401, "The credentials are missing, invalid or expired."),
    4003: (ForbiddenError, 403, "The key was disabled or deleted, or the membership removed."),
    1008: (InvalidRequestError, 400, "The feed refused the query: check `types` and `device_id`."),
}
"""Close codes after which connecting again does not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedChannel:
    channel: int
    kind: str
    name: str
    state: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedDevice:
    """`channels`: None for a device that has one relay and nothing else."""

    device_id: str
    name: str
    relay: str | None
    is_online: bool
    last_seen: datetime | None
    channels: list[FeedChannel] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialState:
    """The devices when a connection begins; later events tell what changes."""

    devices: list[FeedDevice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """Events were missed that the service cannot send again: read the history. An `InitialState` follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent:
    """An event of a type that this version does not know."""

    type: str
    event_id: str
    fields: dict[str, Any]


FeedEvent = Event | InitialState | Resync | UnknownEvent


def parse_event(fields: dict[str, Any]) -> Event | UnknownEvent:
    """Raises ResponseError."""
    found = decode(Event | dict, fields)
    if isinstance(found, dict):
        return UnknownEvent(type=str(fields.get("type")), event_id=str(fields.get("eventId", "")), fields=fields)
    return found  # type: ignore[no-any-return]


@dataclass
class FeedState:
    """What outlives a connection: the cursor to resume from, and the ids of the newest events, to drop repeated ones."""

    cursor: str | None
    _ids: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def accept(self, message: str | bytes) -> FeedEvent | None:
        """The event of a message; None for one that was seen before, and for messages that are no events."""
        fields = json.loads(message)
        kind, self.cursor = fields.get("type"), fields.get("cursor", self.cursor)
        if kind == "initial_state":
            return InitialState(devices=decode(list[FeedDevice], fields["devices"]))
        if kind == "resync":
            return Resync()
        return None if "eventId" not in fields or self._seen(fields["eventId"]) else parse_event(fields)

    def _seen(self, event_id: str) -> bool:
        if event_id in self._ids:
            return True
        self._ids[event_id] = None
        if len(self._ids) > REMEMBERED_IDS:
            self._ids.popitem(last=False)
        return False


def close_error(code: int | None, reason: str) -> ApiError | None:
    """The error for a close code that ends the feed for good."""
    if code not in FINAL_CLOSES:
        return None
    kind, status, message = FINAL_CLOSES[code]
    return kind(status, f"FEED_CLOSED_{code}", f"{message} {reason}".strip(), [], None, None)
