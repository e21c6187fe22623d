"""The account's log and the audit log of a device."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from quart import Blueprint

from adapters.http.core.auth import RequiredAccess, current_session
from adapters.http.core.operation import operation
from adapters.http.core.schemas import QueryParameters, ResponseModel
from domain.events.policy import DEFAULT_LIMIT, MAX_LIMIT
from domain.events.service import EventService, EventView
from domain.kernel.domain_events import EventKind

PageLimit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]
DeviceIdText = Annotated[str, Field(min_length=1, max_length=64)]


class EventsQuery(QueryParameters):
    limit: PageLimit = DEFAULT_LIMIT
    cursor: str | None = Field(default=None, max_length=128, description="`cursor` of the page before.")
    type: EventKind | None = Field(default=None, description="One event type. `telemetry` reads the telemetry history.")
    device_id: DeviceIdText | None = Field(default=None, description="Also of a device that is gone.")


class DeviceEventsQuery(QueryParameters):
    limit: PageLimit = DEFAULT_LIMIT
    before: Annotated[int, Field(ge=0, le=2**52)] | None = Field(default=None, description="Unix milliseconds, exclusive.")


class EventResponse(ResponseModel):
    id: str
    device_id: str | None
    device_name: str | None
    event_type: str
    description: str
    timestamp: int = Field(description="Unix milliseconds.")
    source: str = Field(description="Who did it: `user:…`, `apikey:…`, `schedule:…`, `rule:…`, `device`.")
    address: str | None = Field(description="From where, for Owners and Admins; null where nobody called.")


class EventPageResponse(ResponseModel):
    data: list[EventResponse]
    total: int | None = Field(description="All that match; null for `type=telemetry`, which is not counted.")
    has_more: bool
    cursor: str | None = Field(description="For the next page; null when there is none.")


def events_blueprint(events: EventService) -> Blueprint:
    bp = Blueprint("events", __name__, url_prefix="/api/v1")

    @operation(bp, "GET", "/events", tag="Events", access=RequiredAccess.SESSION, summary="The account's log, newest first")
    async def list_events(query: EventsQuery) -> EventPageResponse:
        """Pages are stable: events that happen meanwhile do not shift them."""
        page = await events.page(
            current_session(), limit=query.limit, cursor=query.cursor, kind=query.type, device_id=query.device_id
        )
        records = [event_response(record) for record in page.events]
        return EventPageResponse(data=records, total=page.total, has_more=page.has_more, cursor=page.cursor)

    @operation(
        bp,
        "GET",
        "/devices/<device_id>/events",
        tag="Events",
        access=RequiredAccess.SESSION,
        summary="A device's audit log, newest first",
        errors={404: "NOT_FOUND"},
    )
    async def list_device_events(device_id: str, query: DeviceEventsQuery) -> list[EventResponse]:
        """Newest first: who did what to it, what it did itself, and what was refused."""
        found = await events.list_by_device(current_session(), device_id, limit=query.limit, before_ms=query.before)
        return [event_response(record) for record in found]

    return bp


def event_response(record: EventView) -> EventResponse:
    return EventResponse(
        id=record.event_id,
        device_id=record.device_id,
        device_name=record.device_name,
        event_type=record.kind,
        description=record.description,
        timestamp=record.at_ms,
        source=record.source,
        address=record.address,
    )
