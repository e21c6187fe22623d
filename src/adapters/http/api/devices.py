"""Devices: register one or many, list, change and delete them. Everything but the list needs a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints

from adapters.http.api.device_setup import CredentialsResponse
from adapters.http.core.callers import AllowedCallers, current_caller, current_session
from adapters.http.core.operation import ApiBlueprint, AuthorityMade, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, page_response
from adapters.http.core.schemas import (
    SINGLE_LINE_SCHEMA,
    VISIBLE_LINE_SCHEMA,
    ChannelNumber,
    EnumValue,
    IdText,
    OneLine,
    PatchBody,
    RequestBodyModel,
    ResponseModel,
    ShortText,
    Timestamp,
)
from adapters.http.core.turns import TurnKind
from domain.commands.queries import DeviceQueries
from domain.devices.channels import MAX_CHANNEL, Channel, ChannelInput, ChannelKind
from domain.devices.model import DeviceMetadata, DeviceStatus, FirmwareProfile, RefusalReason
from domain.devices.registration import (
    MAX_DEVICES_PER_REQUEST,
    BulkCredentials,
    BulkOutcome,
    BulkRegistrationRowResult,
    BulkRegistrationService,
    DeviceRegistrationInput,
)
from domain.devices.search import DeviceSearch, DeviceSort, DeviceStateFilter
from domain.devices.service import DeviceDetails, DeviceService
from domain.kernel.ids import DeviceId, DeviceTypeId, GroupId, ProjectId

MAX_TAGS = 20

DeviceName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=128, strip_whitespace=True),
    OneLine,
    Field(json_schema_extra=VISIBLE_LINE_SCHEMA),
]
ExternalId = DeviceName
SingleLineText = Annotated[
    str, StringConstraints(max_length=256, strip_whitespace=True), OneLine, Field(json_schema_extra=SINGLE_LINE_SCHEMA)
]
DescriptionText = Annotated[str, StringConstraints(max_length=2000)]
Tags = Annotated[list[ShortText], Field(max_length=MAX_TAGS)]


class DeviceRegistrationRequest(RequestBodyModel):
    name: DeviceName
    board_type: ShortText = Field(examples=["ESP32"])
    app_type: ShortText = Field(examples=["PUMP"])
    app_type_other: SingleLineText | None = None
    project_id: IdText[ProjectId] | None = Field(default=None, description="Omitted: the account's default project.")
    device_type_id: IdText[DeviceTypeId] | None = None
    profile: EnumValue[FirmwareProfile] | None = Field(
        default=None, description="The firmware's message format. Omitted: derived from board and application."
    )
    description: DescriptionText | None = None
    location: SingleLineText | None = None
    manufacturer: SingleLineText | None = None
    model: SingleLineText | None = None
    industry: SingleLineText | None = None
    tags: Tags | None = None
    external_id: ExternalId | None = Field(
        default=None, description="Your own id of the device, such as its serial number; unique in the account."
    )

    def to_registration(self) -> DeviceRegistrationInput:
        about = self.to_domain(DeviceMetadata, tags=tuple(dict.fromkeys(self.tags or ())))
        return self.to_domain(DeviceRegistrationInput, about=about)


class DeviceUpdateRequest(PatchBody):
    """Omitted fields keep their value; `null` clears a field that may be empty."""

    nullable = frozenset(
        {
            "app_type_other",
            "device_type_id",
            "external_id",
            "tags",
            "description",
            "location",
            "manufacturer",
            "model",
            "industry",
        }
    )

    name: DeviceName | None = None
    board_type: ShortText | None = None
    app_type: ShortText | None = None
    app_type_other: SingleLineText | None = None
    project_id: IdText[ProjectId] | None = None
    device_type_id: IdText[DeviceTypeId] | None = None
    profile: EnumValue[FirmwareProfile] | None = None
    description: DescriptionText | None = None
    location: SingleLineText | None = None
    manufacturer: SingleLineText | None = None
    model: SingleLineText | None = None
    industry: SingleLineText | None = None
    tags: Tags | None = None
    external_id: ExternalId | None = None
    channels: Channels | None = None

    def to_changes(self) -> dict[str, Any]:
        given = super().to_changes()
        if "tags" in given:
            given["tags"] = tuple(dict.fromkeys(given["tags"] or ()))
        if self.channels is not None:
            given["channels"] = channel_inputs(self.channels)
        return given


class DeviceChannelRequest(RequestBodyModel):
    channel: ChannelNumber
    kind: EnumValue[ChannelKind] = Field(description="Of a channel that the firmware has named: the kind that it has.")
    name: ShortText | None = Field(default=None, description="Omitted or null: as the firmware names it, or by its kind.")


def channel_inputs(given: Sequence[DeviceChannelRequest]) -> tuple[ChannelInput, ...]:
    return tuple(each.to_domain(ChannelInput) for each in sorted(given, key=lambda one: one.channel))


Channels = Annotated[
    list[DeviceChannelRequest],
    Field(
        max_length=MAX_CHANNEL,
        description="All channels. Those that the firmware has named stay without being listed, and lose the name given to them.",
    ),
]


class DevicesQueryParameters(PageQueryParameters):
    project_id: IdText[ProjectId] | None = None
    external_id: ExternalId | None = Field(default=None, description="Only the device with this `externalId`.")
    search: Annotated[str, Field(max_length=128)] | None = Field(
        default=None,
        description="Words that must all be in the name, id, `externalId`, location, tags or application, whatever their case; "
        "what stands in quotes is a phrase. At most eight count.",
    )
    group_id: IdText[GroupId] | None = Field(default=None, description="Only the members of this group.")
    tag: ShortText | None = Field(default=None, description="Only devices with exactly this tag.")
    state: DeviceStateFilter | None = Field(default=None, description="`ONLINE` and `OFFLINE` are of ACTIVE devices.")
    sort: DeviceSort | None = Field(
        default=None,
        description="`created` and `lastSeen`: oldest first; `-lastSeen`: newest first. Omitted: as `created`, but with a "
        "`search` the devices in which all its words begin words come first.",
    )

    def to_search(self) -> DeviceSearch:
        """One device more than the page."""
        search = self.to_domain(DeviceSearch, words=DeviceSearch.words_of(self.search or ""), limit=self.limit + 1)
        return replace(search, after=self.position(*search.position_types))


class DeviceCountsResponse(ResponseModel):
    """Devices by state; a device counts in several. `online` and `offline` are of ACTIVE devices."""

    total: int
    online: int
    offline: int
    on: int
    off: int
    pending: int
    disabled: int
    revoked: int
    dead_letters: int = Field(description="Messages of devices that are set aside because the database refused them.")


class DeviceProjectResponse(ResponseModel):
    project_id: str
    name: str


class LastDropResponse(ResponseModel):
    reason: str
    at: Timestamp


class LastRefusalResponse(ResponseModel):
    reason: RefusalReason
    at: Timestamp
    topic: str | None = Field(description="The topic or filter that was refused, where there was one.")


class DeviceHealthResponse(ResponseModel):
    """What the service has measured or learned about the device. A field is null until it is known."""

    clock_offset_ms: int | None = Field(description="How far the device's clock is ahead; negative when it is behind.")
    last_drop: LastDropResponse | None = Field(description="The last message, or part of one, that was not kept.")
    last_refusal: LastRefusalResponse | None = Field(
        description="When the broker last refused the device, its will or a subscription, or a wrong password for it."
    )
    reconnects: int = Field(description="Connections after the first one.")
    firmware: str | None
    max_packet_size: int | None = Field(description="Bytes, as the last connection announced them (MQTT 5).")


class DeviceChannelResponse(ResponseModel):
    channel: int
    kind: ChannelKind
    name: str
    state: Any = Field(
        description="Of a RELAY `ON` or `OFF`, of an INPUT the last action; of a LEVEL `{power, level}`, a COLOR `{power, level, "
        "color, kelvin}`, a COVER `{position, moving}`, a CLIMATE `{targetCelsius, mode}`. null until the device reports it."
    )
    reported_at: Timestamp | None = Field(description="When the device reported this state.")

    @classmethod
    def from_domain(cls, channel: Channel) -> Self:
        return cls.of(channel, state=channel.shown_state)


class DeviceResponse(ResponseModel):
    device_id: str
    name: str
    board_type: str
    app_type: str
    app_type_other: str | None
    device_status: DeviceStatus
    enabled: bool
    device_type_id: str | None
    relay_state: bool | None = Field(description="null until the device reports it.")
    is_online: bool
    last_seen: Timestamp | None
    created_at: Timestamp
    project: DeviceProjectResponse
    profile: FirmwareProfile
    description: str | None
    location: str | None
    manufacturer: str | None
    model: str | None
    industry: str | None
    tags: list[str]
    external_id: str | None = Field(description="The user's own id of the device.")
    group_ids: list[str]
    channels: list[DeviceChannelResponse] = Field(description="What can be switched, set or pressed. Channel 1 is the relay.")
    health: DeviceHealthResponse

    @classmethod
    def from_domain(cls, details: DeviceDetails) -> Self:
        device = details.device
        return cls.of(
            device,
            device.about,
            details,
            device_status=device.status,
            enabled=device.is_active,
            relay_state=device.relay,
            channels=[DeviceChannelResponse.from_domain(each) for each in device.all_channels],
        )


class DeviceChangedResponse(DeviceResponse):
    ok: bool = True


WRITE_ERRORS = {403: "ROLE_REQUIRED", 409: "CONFLICT"}


def devices_blueprint(devices: DeviceService, control: DeviceQueries) -> ApiBlueprint:
    bp = ApiBlueprint("devices", "Devices")

    @bp.operation("GET /devices", AllowedCallers.KEY, "List devices", errors={404: "NOT_FOUND"})
    async def list_devices(query: DevicesQueryParameters) -> HttpHandlerResult[list[DeviceResponse]]:
        """Oldest first, unless the query says otherwise. An API key sees only the devices its grants cover. The header
        `X-Total-Count` has the number of matching devices."""
        search = query.to_search()
        page = await control.list_devices(current_caller(), search)
        return page_response(
            page.devices, query, DeviceResponse.from_domain, lambda one: search.position_of(one.device), total=page.total
        )

    @bp.operation("GET /devices/summary", AllowedCallers.SESSION, "Count devices by state")
    async def summarize_devices() -> DeviceCountsResponse:
        """How many devices the account has, and how many in each state."""
        return DeviceCountsResponse.of(await control.count_devices(current_session()))

    @bp.operation(
        "POST /devices/register",
        AllowedCallers.SESSION,
        "Register a device",
        status=201,
        errors={403: "ROLE_REQUIRED", 404: "NOT_FOUND", 409: "TOO_MANY_DEVICES EXTERNAL_ID_TAKEN"},
        idempotent=True,
    )
    async def register_device(body: DeviceRegistrationRequest) -> DeviceResponse:
        """A new device is PENDING. It can connect once it has credentials."""
        device = await devices.register(current_session(), body.to_registration())
        return DeviceResponse.from_domain(await devices.get(current_session(), device.device_id))

    @bp.operation("GET /devices/<device_id>", AllowedCallers.SESSION, "Get a device")
    async def get_device(device_id: DeviceId) -> DeviceResponse:
        """Send the `ETag` as `If-Match` with a change."""
        return DeviceResponse.from_domain(await devices.get(current_session(), device_id))

    @bp.operation(
        "PUT /devices/<device_id>",
        AllowedCallers.SESSION,
        "Update a device",
        errors=WRITE_ERRORS | {409: "CONFLICT REQUEST_PENDING EXTERNAL_ID_TAKEN"},
    )
    async def update_device(device_id: DeviceId, body: DeviceUpdateRequest) -> DeviceChangedResponse:
        """Omitted fields keep their value."""
        await devices.update(current_session(), device_id, body.to_changes())
        return await show_changed_device(device_id)

    @bp.operation("DELETE /devices/<device_id>", AllowedCallers.SESSION, "Delete a device", errors=WRITE_ERRORS)
    async def delete_device(device_id: DeviceId) -> None:
        """Also deletes its schedules, rules, grants, telemetry, approvals and credentials, and closes its connection."""
        await devices.delete(current_session(), device_id)

    @bp.operation(
        "PATCH /devices/<device_id>/toggle",
        AllowedCallers.SESSION,
        "Disable or enable a device",
        errors=WRITE_ERRORS | {409: "CONFLICT DEVICE_STATE"},
    )
    async def toggle_device(device_id: DeviceId) -> DeviceChangedResponse:
        """Switches between ACTIVE and DISABLED. A disabled device is disconnected and accepts no commands."""
        await devices.toggle_enabled(current_session(), device_id)
        return await show_changed_device(device_id)

    async def show_changed_device(device_id: DeviceId) -> DeviceChangedResponse:
        return DeviceChangedResponse.from_domain(await devices.get(current_session(), device_id))

    return bp


class BulkRegistrationRequest(RequestBodyModel):
    devices: Annotated[list[DeviceRegistrationRequest], Field(min_length=1, max_length=MAX_DEVICES_PER_REQUEST)]
    credentials: EnumValue[BulkCredentials] = Field(
        default=BulkCredentials.NONE,
        description=(
            "`NEW`: make credentials for the devices that have none, and answer with them, once. `UNUSED`: also replace those "
            "that no device has connected with yet, for a repeated request whose answer was lost."
        ),
    )


class BulkDeviceResponse(ResponseModel):
    outcome: BulkOutcome = Field(
        description="`EXISTS`: a device of the account has this `externalId`; it was not changed. `FAILED`: see `error`."
    )
    name: str
    external_id: str | None
    device_id: str | None
    credentials: CredentialsResponse | None
    error: str | None = Field(description="The code of the error of a FAILED row.")
    message: str | None

    @classmethod
    def from_domain(cls, row: DeviceRegistrationInput, result: BulkRegistrationRowResult) -> BulkDeviceResponse:
        device, issued, error = result.device, result.credentials, result.error
        return cls(
            outcome=result.outcome,
            name=row.name if device is None else device.name,
            external_id=row.external_id,
            device_id=None if device is None else device.device_id,
            credentials=None if issued is None else CredentialsResponse.from_domain(issued),
            error=None if error is None else error.code,
            message=None if error is None else error.message,
        )


class BulkRegistrationResponse(ResponseModel):
    """`devices` has one entry per row, in the order of the request."""

    created: int
    existing: int
    failed: int
    devices: list[BulkDeviceResponse]


def bulk_registration_blueprint(bulk: BulkRegistrationService) -> ApiBlueprint:
    bp = ApiBlueprint("bulk_registration", "Devices")

    @bp.operation(
        "POST /devices/register/bulk",
        AllowedCallers.SESSION,
        "Register many devices",
        turn=TurnKind.BULK,
        errors={403: "ROLE_REQUIRED", 409: "CONFLICT"},
        idempotent=True,
        authority=AuthorityMade("credentials_generated", "POST /devices/{deviceId}/revoke", when="credentials are replaced"),
    )
    async def register_devices(body: BulkRegistrationRequest) -> BulkRegistrationResponse:
        """Up to 200 devices in one transaction, with an outcome for each. A body with a malformed row is refused as a whole, and
        `details` names every field. Give each device an `externalId`, your own id of it: a repeated request then finds what it
        has made, and makes the rest. Send larger fleets as several requests."""
        rows = [row.to_registration() for row in body.devices]
        results = await bulk.register_many(current_session(), rows, body.credentials)
        outcomes = [result.outcome for result in results]
        return BulkRegistrationResponse(
            created=outcomes.count(BulkOutcome.CREATED),
            existing=outcomes.count(BulkOutcome.EXISTS),
            failed=outcomes.count(BulkOutcome.FAILED),
            devices=[BulkDeviceResponse.from_domain(row, result) for row, result in zip(rows, results, strict=True)],
        )

    return bp
