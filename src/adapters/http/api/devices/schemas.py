"""Request and response models of devices."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from adapters.http.core.schemas import (
    SINGLE_LINE_SCHEMA,
    VISIBLE_LINE_SCHEMA,
    EnumValue,
    IdText,
    OkResponse,
    OneLine,
    PatchBody,
    QueryParametersModel,
    RequestBodyModel,
    ResponseModel,
    Timestamp,
)
from domain.devices.model import DeviceMetadata, DeviceStatus, FirmwareProfile
from domain.devices.registration import DeviceRegistrationInput
from domain.devices.search import DeviceSearch, DeviceSort, DeviceStateFilter
from domain.devices.service import DeviceDetails
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import DeviceTypeId, GroupId, ProjectId

MAX_TAGS = 20
MAX_DEVICES_PER_PAGE = 500

_VISIBLE_LINE, _SINGLE_LINE = Field(json_schema_extra=VISIBLE_LINE_SCHEMA), Field(json_schema_extra=SINGLE_LINE_SCHEMA)
DeviceName = Annotated[str, StringConstraints(min_length=1, max_length=128, strip_whitespace=True), OneLine, _VISIBLE_LINE]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=64, strip_whitespace=True), OneLine, _VISIBLE_LINE]
SingleLineText = Annotated[str, StringConstraints(max_length=256, strip_whitespace=True), OneLine, _SINGLE_LINE]
DescriptionText = Annotated[str, StringConstraints(max_length=2000)]
ExternalId = Annotated[str, StringConstraints(min_length=1, max_length=128, strip_whitespace=True), OneLine, _VISIBLE_LINE]
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

    def to_changes(self) -> dict[str, Any]:
        given = super().to_changes()
        if "tags" in given:
            given["tags"] = tuple(dict.fromkeys(given["tags"] or ()))
        return given


class DevicesQueryParameters(QueryParametersModel):
    project_id: IdText[ProjectId] | None = None
    external_id: ExternalId | None = Field(default=None, description="Only the device with this `externalId`.")
    search: Annotated[str, Field(max_length=128)] | None = Field(
        default=None,
        description="Words that must all be in the name, id, location, tags or application; case is ignored for a–z.",
    )
    group_id: IdText[GroupId] | None = Field(default=None, description="Only the members of this group.")
    tag: ShortText | None = Field(default=None, description="Only devices with exactly this tag.")
    state: DeviceStateFilter | None = Field(default=None, description="`online` and `offline` are of ACTIVE devices.")
    sort: DeviceSort = Field(
        default=DeviceSort.CREATED, description="`created` and `lastSeen`: oldest first; `-lastSeen`: newest first."
    )
    limit: Annotated[int, Field(ge=1, le=MAX_DEVICES_PER_PAGE)] | None = Field(
        default=None, description="Devices on a page. Omitted: all."
    )
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = Field(default=0, description="Devices to skip; needs `limit`.")

    def to_search(self) -> DeviceSearch:
        if self.offset and self.limit is None:
            raise ValidationFailed.for_field("offset", "needs `limit`: the number of devices on a page.")
        return self.to_domain(DeviceSearch, words=DeviceSearch.words_of(self.search or ""))


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


class DeviceRegisteredResponse(ResponseModel):
    device_id: str


class DeviceProjectResponse(ResponseModel):
    project_id: str
    name: str


class LastDropResponse(ResponseModel):
    reason: str
    at: Timestamp


class DeviceHealthResponse(ResponseModel):
    """What the service has measured or learned about the device. A field is null until it is known."""

    clock_offset_ms: int | None = Field(description="How far the device's clock is ahead; negative when it is behind.")
    last_drop: LastDropResponse | None = Field(description="The last message, or part of one, that was not kept.")
    reconnects: int = Field(description="Connections after the first one.")
    firmware: str | None
    max_packet_size: int | None = Field(description="Bytes, as the last connection announced them (MQTT 5).")


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
    health: DeviceHealthResponse

    @classmethod
    def from_domain(cls, details: DeviceDetails) -> DeviceResponse:
        device = details.device
        return cls.of(
            device, device.about, details, device_status=device.status, enabled=device.is_active, relay_state=device.relay
        )


class DeviceToggledResponse(OkResponse):
    enabled: bool
    device_status: DeviceStatus
