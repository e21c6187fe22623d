"""Request models of the fleet as a file: the document, which has the form of the file."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from adapters.http.api.commands.schemas import CommandDefinitionCreateRequest, Label
from adapters.http.api.devices.schemas import DescriptionText, DeviceName, ExternalId, ShortText, SingleLineText, Tags
from adapters.http.api.grants.schemas import GrantBody
from adapters.http.api.rules.schemas import DeviceMetricNames, RuleCreateRequest
from adapters.http.api.schedules.schemas import ScheduleCreateRequest
from adapters.http.api.webhooks.schemas import FORMAT, EventTypes, Url
from adapters.http.core.schemas import DisplayName, EnumValue, IdText, QueryParametersModel, RequestBodyModel
from domain.devices.model import FirmwareProfile
from domain.devices.ports import MAX_GROUP_DEVICES
from domain.devices.registration import BulkCredentials
from domain.fleet_file.model import MAX_OBJECTS
from domain.rules.model import MAX_RULES_PER_DEVICE
from domain.schedules.model import SLOTS_PER_DEVICE
from domain.webhooks.model import WebhookFormat

Many = Field(max_length=MAX_OBJECTS)
DeviceReference = Annotated[str, Field(min_length=1, max_length=128, description="Its `externalId` or `deviceId`.")]
ProjectName = Annotated[DisplayName, Field(description="The name of a project.")]


class FleetProject(RequestBodyModel):
    name: DisplayName


class FleetDeviceType(RequestBodyModel):
    name: Label
    commands: list[CommandDefinitionCreateRequest] = Field(default_factory=list, max_length=100)
    metrics: DeviceMetricNames | None = Field(default=None, description="Of the document's devices that name this type.")


class FleetDevice(RequestBodyModel):
    """Give `externalId`, or the `deviceId` of a stored device; with both, the device gets the `externalId`."""

    external_id: ExternalId | None = Field(default=None, description="Your own id of the device; unique in the account.")
    device_id: IdText[str] | None = None
    name: DeviceName
    board_type: ShortText = Field(examples=["ESP32"])
    app_type: ShortText = Field(examples=["PUMP"])
    app_type_other: SingleLineText | None = None
    project: ProjectName | None = Field(default=None, description="Omitted, for a new device: the default project.")
    device_type: Label | None = Field(default=None, description="The name of a device type.")
    profile: EnumValue[FirmwareProfile] | None = None
    description: DescriptionText | None = None
    location: SingleLineText | None = None
    manufacturer: SingleLineText | None = None
    model: SingleLineText | None = None
    industry: SingleLineText | None = None
    tags: Tags | None = None
    metrics: DeviceMetricNames | None = None
    commands: list[CommandDefinitionCreateRequest] | None = Field(default=None, max_length=100)
    schedules: list[ScheduleCreateRequest] | None = Field(default=None, max_length=SLOTS_PER_DEVICE)
    rules: list[RuleCreateRequest] | None = Field(default=None, max_length=MAX_RULES_PER_DEVICE)


class FleetGroup(RequestBodyModel):
    name: DisplayName
    project: ProjectName | None = Field(default=None, description="Omitted: the default project.")
    description: DescriptionText | None = None
    devices: list[DeviceReference] = Field(default_factory=list, max_length=MAX_GROUP_DEVICES, description="All of its members.")


class FleetApiKey(RequestBodyModel):
    name: DisplayName
    enabled: bool = True


class FleetGrant(GrantBody):
    """Of one of `apiKey` and `member`, on one of `device`, `group` and `project`; with `group`, `project` is the group's."""

    api_key: DisplayName | None = Field(default=None, description="The name of an API key.")
    member: Annotated[str, Field(max_length=254)] | None = Field(default=None, description="The email address of a member.")
    device: DeviceReference | None = None
    group: DisplayName | None = Field(default=None, description="The name of a group.")
    project: ProjectName | None = None


class FleetWebhook(RequestBodyModel):
    api_key: DisplayName = Field(description="The name of the API key whose events it gets.")
    url: Url
    types: EventTypes | None = None
    format: Annotated[EnumValue[WebhookFormat], Field(description=FORMAT)] = WebhookFormat.STANDARD
    enabled: bool = True


class FleetDocumentRequest(RequestBodyModel):
    """A section that is left out is not managed: nothing of it is changed or deleted. An optional field that is left out keeps
    the value that it has."""

    version: int = Field(default=1, ge=1, le=1, description="The version of the document's format.")
    project: ProjectName | None = Field(
        default=None, description="The one project that the document is about: the default of its devices, groups and grants."
    )
    projects: Annotated[list[FleetProject], Many] | None = None
    device_types: Annotated[list[FleetDeviceType], Many] | None = None
    devices: Annotated[list[FleetDevice], Many] | None = None
    groups: Annotated[list[FleetGroup], Many] | None = None
    api_keys: Annotated[list[FleetApiKey], Many] | None = None
    grants: Annotated[list[FleetGrant], Many] | None = None
    webhooks: Annotated[list[FleetWebhook], Many] | None = None


class FleetApplyRequest(RequestBodyModel):
    document: FleetDocumentRequest
    prune: bool = Field(default=False, description="Also delete what the document's sections do not name.")
    credentials: EnumValue[BulkCredentials] = Field(
        default=BulkCredentials.NONE,
        description=(
            "`NEW`: make credentials for the devices of the document that have none, and answer with them, once. `UNUSED`: also "
            "replace those that no device has connected with yet."
        ),
    )


class FleetExportQueryParameters(QueryParametersModel):
    project: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="The name of a project: only its devices and groups, and the grants on them."
    )
