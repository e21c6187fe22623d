"""Event routes: the account's event log and a device's audit log."""

from __future__ import annotations

from adapters.http.api.events.schemas import DeviceEventsQuery, EventPageResponse, EventResponse, EventsQuery, event_response
from adapters.http.core.auth import RequiredAccess, current_session
from adapters.http.core.operation import ApiBlueprint, operation
from domain.events.service import EventService


def events_blueprint(events: EventService) -> ApiBlueprint:
    bp = ApiBlueprint("events", "Events")

    @operation(bp, "GET", "/events", RequiredAccess.SESSION, "List events")
    async def list_events(query: EventsQuery) -> EventPageResponse:
        """Newest first. New events do not shift the pages."""
        page = await events.page(
            current_session(),
            limit=query.limit,
            cursor=query.cursor,
            kind=query.type,
            device_id=query.device_id,
            search=query.to_search(),
        )
        records = [event_response(record) for record in page.events]
        return EventPageResponse(data=records, total=page.total, has_more=page.has_more, cursor=page.cursor)

    @operation(
        bp, "GET", "/devices/<device_id>/events", RequiredAccess.SESSION, "List a device's events", errors={404: "NOT_FOUND"}
    )
    async def list_device_events(device_id: str, query: DeviceEventsQuery) -> list[EventResponse]:
        """The audit log, newest first: changes made to the device, its own reports, and denied requests."""
        found = await events.list_by_device(current_session(), device_id, limit=query.limit, before_ms=query.before)
        return [event_response(record) for record in found]

    return bp
