"""The account's log and the audit log of a device."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from quart import Blueprint

from adapters.http.auth import Access, current_session
from adapters.http.operation import operation
from adapters.http.schema import Query, Reply
from domain.events.policy import DEFAULT_LIMIT, MAX_LIMIT
from domain.events.service import EventService, Record
from domain.kernel.facts import EventKind

Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]
Word = Annotated[str, Field(min_length=1, max_length=64)]


class EventsQuery(Query):
    limit: Limit = DEFAULT_LIMIT
    cursor: str | None = Field(default=None, max_length=128, description="`cursor` of the page before.")
    type: EventKind | None = Field(default=None, description="One event type. `telemetry` reads the telemetry history.")
    device_id: Word | None = Field(default=None, description="Also of a device that is gone.")


class DeviceEventsQuery(Query):
    limit: Limit = DEFAULT_LIMIT
    before: Annotated[int, Field(ge=0, le=2**52)] | None = Field(default=None, description="Unix milliseconds, exclusive.")


class EventReply(Reply):
    id: str
    device_id: str | None
    device_name: str | None
    event_type: str
    description: str
    timestamp: int = Field(description="Unix milliseconds.")
    source: str = Field(description="Who did it: `user:…`, `apikey:…`, `schedule:…`, `rule:…`, `device`.")
    address: str | None = Field(description="From where, for Owners and Admins; null where nobody called.")


class EventPage(Reply):
    data: list[EventReply]
    total: int | None = Field(description="All that match; null for `type=telemetry`, which is not counted.")
    has_more: bool
    cursor: str | None = Field(description="For the next page; null when there is none.")


def events_blueprint(events: EventService) -> Blueprint:
    bp = Blueprint("events", __name__, url_prefix="/api/v1")

    @operation(bp, "GET", "/events", tag="Events", access=Access.SESSION, summary="The account's log, newest first")
    async def list_events(query: EventsQuery) -> EventPage:
        """Pages are stable: events that happen meanwhile do not shift them."""
        page = await events.page(
            current_session(), limit=query.limit, cursor=query.cursor, kind=query.type, device_id=query.device_id
        )
        records = [event_reply(record) for record in page.records]
        return EventPage(data=records, total=page.total, has_more=page.has_more, cursor=page.cursor)

    @operation(
        bp,
        "GET",
        "/devices/<device_id>/events",
        tag="Events",
        access=Access.SESSION,
        summary="A device's audit log, newest first",
        errors={404: "NOT_FOUND"},
    )
    async def list_device_events(device_id: str, query: DeviceEventsQuery) -> list[EventReply]:
        """Newest first: who did what to it, what it did itself, and what was refused."""
        found = await events.of_device(current_session(), device_id, limit=query.limit, before_ms=query.before)
        return [event_reply(record) for record in found]

    return bp


def event_reply(record: Record) -> EventReply:
    return EventReply(
        id=record.event_id,
        device_id=record.device_id,
        device_name=record.device_name,
        event_type=record.kind,
        description=record.description,
        timestamp=record.at_ms,
        source=record.source,
        address=record.address,
    )
