"""Event routes: the account's event log, its export as proof, and a device's audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator

from quart import Response

from adapters.http.api.events import schemas as schema
from adapters.http.core.api_operation import NonJsonResponse
from adapters.http.core.caller_authentication import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.operation_handling import HttpHandlerResult
from adapters.http.core.paging import next_link
from domain.audit.export import AuditExportGenerator
from domain.events.service import EventService
from domain.kernel.caller import Role, require_role

_LINES_PER_CHUNK = 100


def events_blueprint(events: EventService, exporter: AuditExportGenerator) -> ApiBlueprint:
    bp = ApiBlueprint("events", "Events")

    @bp.operation("GET /events", AllowedCallers.SESSION, "List events")
    async def list_events(query: schema.EventsQueryParameters) -> schema.EventPageResponse:
        """Newest first. New events do not shift the pages."""
        page = await events.page(
            current_session(),
            limit=query.limit,
            cursor=query.cursor,
            kind=query.type,
            device_id=query.device_id,
            search=query.to_search(),
        )
        return schema.EventPageResponse.of(
            page, data=[schema.event_response(record) for record in page.events], cursor=page.cursor or ""
        )

    @bp.operation(
        "GET /events/export",
        AllowedCallers.SESSION,
        "Export the event log",
        returns={200: NonJsonResponse("application/x-ndjson", "One JSON object per line.")},
        errors={403: "ROLE_REQUIRED", 404: "NOT_FOUND"},
    )
    async def export_events(query: schema.AuditExportQueryParameters) -> Response:
        """The log as proof, oldest first: records that are linked by hashes, and signed seals. For Owners and Admins.
        `latchboard audit verify` verifies the lines; the audit format says how to do it without this service."""
        caller = current_session()
        require_role(caller, Role.ADMIN)
        lines = exporter.lines(caller.account_id, query.to_selection(), after_seal=query.after_seal)
        first = await anext(lines)  # an error must come before the first byte
        response = Response(_in_chunks(first, lines), content_type="application/x-ndjson")
        response.headers["Content-Disposition"] = f'attachment; filename="{caller.account_id}.ndjson"'
        response.timeout = None
        return response

    @bp.operation("GET /devices/<device_id>/events", AllowedCallers.SESSION, "List a device's events", paged=True)
    async def list_device_events(
        device_id: str, query: schema.DeviceEventsQueryParameters
    ) -> HttpHandlerResult[list[schema.EventResponse]]:
        """The audit log, newest first: changes made to the device, its own reports, and denied requests."""
        found, more = await events.list_by_device(
            current_session(), device_id, limit=query.limit, before_ms=query.before, cursor=query.cursor
        )
        headers = {} if more is None else {"Link": next_link("cursor", more, "before")}
        return HttpHandlerResult([schema.event_response(record) for record in found], headers=headers)

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
