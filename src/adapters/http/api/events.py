"""The event log: of the account, of a device, and its export as proof."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from pydantic import Field
from quart import Response

from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, HttpHandlerResult, NonJsonResponse
from adapters.http.core.paging import next_link
from adapters.http.core.schemas import IdText, InstantMs, QueryParametersModel, ResponseModel
from domain.audit.export import AuditExportGenerator, AuditSelection
from domain.events.model import Event, EventSearch
from domain.events.service import DEFAULT_LIMIT, MAX_LIMIT, EventService
from domain.kernel.domain_event import EventKind

PageLimit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]


class EventsQueryParameters(QueryParametersModel):
    limit: PageLimit = DEFAULT_LIMIT
    cursor: str | None = Field(default=None, max_length=128, description="The `cursor` of the previous page.")
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


class DeviceEventsQueryParameters(QueryParametersModel):
    limit: PageLimit = DEFAULT_LIMIT
    before: Annotated[int, Field(ge=0, le=2**52)] | None = Field(default=None, description="Unix milliseconds, exclusive.")
    cursor: str | None = Field(default=None, max_length=128, description="The next page. The `Link` header carries it.")


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
    cursor: str = Field(description="Pass it to get the next page; empty on the last page.")


_LINES_PER_CHUNK = 100


def events_blueprint(events: EventService, exporter: AuditExportGenerator) -> ApiBlueprint:
    bp = ApiBlueprint("events", "Events")

    @bp.operation("GET /events", AllowedCallers.SESSION, "List events", errors={410: "OTHER_LIFE"})
    async def list_events(query: EventsQueryParameters) -> EventPageResponse:
        """Newest first. New events do not shift the pages."""
        page = await events.page(
            current_session(),
            limit=query.limit,
            cursor=query.cursor,
            kind=query.type,
            device_id=query.device_id,
            search=query.to_search(),
        )
        return EventPageResponse.of(
            page, data=[EventResponse.from_domain(record) for record in page.events], cursor=page.cursor or ""
        )

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

    @bp.operation(
        "GET /devices/<device_id>/events",
        AllowedCallers.SESSION,
        "List a device's events",
        paged=True,
        errors={410: "OTHER_LIFE"},
    )
    async def list_device_events(device_id: str, query: DeviceEventsQueryParameters) -> HttpHandlerResult[list[EventResponse]]:
        """The audit log, newest first: changes made to the device, its own reports, and denied requests."""
        found, more = await events.list_by_device(
            current_session(), device_id, limit=query.limit, before_ms=query.before, cursor=query.cursor
        )
        headers = {} if more is None else {"Link": next_link("cursor", more, "before")}
        return HttpHandlerResult([EventResponse.from_domain(record) for record in found], headers=headers)

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
