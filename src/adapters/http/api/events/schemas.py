"""Request and response models of the event log."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from adapters.http.core.schemas import IdText, InstantMs, QueryParametersModel, ResponseModel
from domain.audit.export import AuditSelection
from domain.events.model import EventSearch
from domain.events.service import DEFAULT_LIMIT, MAX_LIMIT, EventView
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
        default=None, description="Only events with this text in the description or the device's name; case is ignored for a–z."
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


class EventPageResponse(ResponseModel):
    data: list[EventResponse]
    total: int = Field(
        description="Number of events by `type` and `deviceId`, whatever the other filters; the readings of `type=telemetry` are "
        "counted up to 10,000."
    )
    has_more: bool
    cursor: str = Field(description="Pass it to get the next page; empty on the last page.")


def event_response(record: EventView) -> EventResponse:
    return EventResponse.of(
        record,
        id=record.event_id,
        device_id=record.device_id or "",
        device_name=record.device_name or "",
        event_type=record.kind,
        timestamp=record.at_ms,
    )
