"""The event log: of the account, of a device, and its export as proof."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from pydantic import Field
from quart import Response

from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, HttpHandlerResult, NonJsonResponse
from adapters.http.core.paging import PageQueryParameters, cursor_at, page_of, page_response
from adapters.http.core.schemas import IdText, InstantMs, QueryParametersModel, ResponseModel
from domain.audit.export import AuditExportGenerator, AuditSelection
from domain.events.model import TELEMETRY, Event, EventSearch
from domain.events.service import DEFAULT_LIMIT, DEVICE_LOG_POSITION, LOG_POSITION, MAX_LIMIT, READING_POSITION, EventService
from domain.kernel.cursors import EVENTS
from domain.kernel.domain_event import EventKind

EventPageLimit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]


class EventsQueryParameters(PageQueryParameters):
    limit: EventPageLimit = DEFAULT_LIMIT
    type: EventKind | None = Field(default=None, description="Only events of this type. `telemetry` reads the telemetry history.")
    device_id: IdText[str] | None = Field(default=None, description="Only events of this device, which may have been deleted.")
    since: InstantMs | None = Field(default=None, description="Only events at or after this time.")
    until: InstantMs | None = Field(default=None, description="Only events before this time.")
    source: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="Only events of this `source`."
    )
    text: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="Only events with this text in the description or the device's name, whatever its case."
    )

    def to_search(self) -> EventSearch:
        return EventSearch(self.since, self.until, self.source, self.text)


class AuditExportQueryParameters(QueryParametersModel):
    since: InstantMs | None = Field(default=None, description="Only records at or after this time.")
    until: InstantMs | None = Field(default=None, description="Only records before this time.")
    command_id: IdText[str] | None = Field(
        default=None, description="Only the story of a command: the id of an execution or of an approval. Not with a time."
    )
    after_seal: Annotated[int, Field(ge=0, le=2**52)] | None = Field(
        default=None, description="Continue after the seal with this number, the last one of an earlier export."
    )

    def to_selection(self) -> AuditSelection:
        return AuditSelection(self.since, self.until, self.command_id)


class DeviceEventsQueryParameters(PageQueryParameters):
    limit: EventPageLimit = DEFAULT_LIMIT
    since: InstantMs | None = Field(default=None, description="Only events at or after this time.")
    until: InstantMs | None = Field(default=None, description="Only events before this time.")


class EventResponse(ResponseModel):
    id: str
    device_id: str = Field(description="Empty if the event concerns no device.")
    device_name: str = Field(description="The name at the time of the event; empty if it concerns no device.")
    event_type: str
    description: str
    timestamp: int = Field(description="Unix milliseconds.")
    source: str = Field(description="The actor: `user:…`, `apikey:…`, `schedule:…`, `rule:…`, `device`.")
    address: str = Field(description="The client's address, visible to Owners and Admins; empty if no request caused the event.")

    @classmethod
    def from_domain(cls, record: Event) -> EventResponse:
        return cls.of(
            record,
            id=record.event_id,
            device_id=record.device_id or "",
            device_name=record.device_name or "",
            event_type=record.kind,
            timestamp=record.at_ms,
        )


class EventPageResponse(ResponseModel):
    data: list[EventResponse]
    total: int = Field(
        description="Number of events by `type` and `deviceId`, whatever the other filters; the readings of `type=telemetry` are "
        "counted up to 10,000."
    )
    has_more: bool
    cursor: str = Field(description="Of the next page. That of the last page leads to an empty one.")


_LINES_PER_CHUNK = 100


def events_blueprint(events: EventService, exporter: AuditExportGenerator) -> ApiBlueprint:
    bp = ApiBlueprint("events", "Events")

    @bp.operation("GET /events", AllowedCallers.SESSION, "List events")
    async def list_events(query: EventsQueryParameters) -> HttpHandlerResult[EventPageResponse]:
        """Newest first. New events do not shift the pages."""
        types = READING_POSITION if query.type == TELEMETRY else LOG_POSITION
        page = await events.page(
            current_session(),
            limit=query.limit,
            after=query.position(*types, kind=EVENTS),
            kind=query.type,
            device_id=query.device_id,
            search=query.to_search(),
        )
        shown = [EventResponse.from_domain(record) for record in page.events]
        body = EventPageResponse.of(page, data=shown, cursor=cursor_at(page.end, EVENTS))
        return page_of(body, page.end if page.has_more else None, kind=EVENTS)

    @bp.operation(
        "GET /events/export",
        AllowedCallers.SESSION,
        "Export the event log",
        returns={200: NonJsonResponse("application/x-ndjson", "One JSON object per line.")},
        errors={403: "ROLE_REQUIRED", 404: "NOT_FOUND"},
    )
    async def export_events(query: AuditExportQueryParameters) -> Response:
        """The log as proof, oldest first: records that are linked by hashes, and signed seals. For Owners and Admins.
        `latchboard audit verify` verifies the lines; the audit format says how to do it without this service."""
        caller = current_session()
        lines = exporter.lines_for(caller, query.to_selection(), after_seal=query.after_seal)
        first = await anext(lines)  # an error must come before the first byte
        response = Response(_in_chunks(first, lines), content_type="application/x-ndjson")
        response.headers["Content-Disposition"] = f'attachment; filename="{caller.account_id}.ndjson"'
        response.timeout = None
        return response

    @bp.operation("GET /events/<event_id>", AllowedCallers.SESSION, "Get an event")
    async def get_event(event_id: str) -> EventResponse:
        """As long as the log keeps it. A reading is no event of the log: it is in the telemetry of its device."""
        return EventResponse.from_domain(await events.get(current_session(), event_id))

    @bp.operation("GET /devices/<device_id>/events", AllowedCallers.SESSION, "List a device's events")
    async def list_device_events(device_id: str, query: DeviceEventsQueryParameters) -> HttpHandlerResult[list[EventResponse]]:
        """The audit log, newest first: changes made to the device, its own reports, and denied requests."""
        span, after = EventSearch(query.since, query.until), query.position(*DEVICE_LOG_POSITION)
        found = await events.list_by_device(current_session(), device_id, limit=query.limit + 1, span=span, after=after)
        return page_response(found, query, EventResponse.from_domain, lambda event: (event.at_ms, event.position))

    return bp


async def _in_chunks(first: str, rest: AsyncIterator[str]) -> AsyncIterator[bytes]:
    chunk = [first]
    async for line in rest:
        chunk.append(line)
        if len(chunk) == _LINES_PER_CHUNK:
            yield ("\n".join(chunk) + "\n").encode()
            chunk = []
    if chunk:
        yield ("\n".join(chunk) + "\n").encode()
