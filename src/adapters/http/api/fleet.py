"""The fleet as a document, which has the form of its file: export it, plan a change of it, apply the change.

From top to bottom: the document, its way into the domain, what comes back, the routes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, Field, JsonValue
from pydantic.alias_generators import to_camel

from adapters.http.api.commands import CommandDefinitionCreateRequest
from adapters.http.api.device_setup import CredentialsResponse
from adapters.http.api.devices import Channels, DescriptionText, DeviceName, ExternalId, SingleLineText, Tags, channel_inputs
from adapters.http.api.grants import GrantBody
from adapters.http.api.rules import DeviceMetricNames, RuleCreateRequest
from adapters.http.api.schedules import ScheduleCreateRequest
from adapters.http.api.webhooks import FORMAT, EventTypes, Url
from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, AuthorityMade
from adapters.http.core.schemas import (
    DisplayName,
    EnumValue,
    IdText,
    QueryParametersModel,
    RequestBodyModel,
    ResponseModel,
    ShortText,
)
from adapters.http.core.turns import TurnKind
from domain.devices.catalog import infer_profile
from domain.devices.model import FirmwareProfile
from domain.devices.ports import MAX_GROUP_DEVICES
from domain.devices.registration import BulkCredentials
from domain.events.model import DEFAULT_TYPES
from domain.fleet_file.account_objects import check_place
from domain.fleet_file.model import (
    MAX_OBJECTS,
    DesiredFleetObject,
    Fields,
    FleetAction,
    FleetDocument,
    FleetKind,
    FleetObjectOutcome,
    Key,
    PlannedFieldChange,
    StoredFleetObject,
    with_place,
)
from domain.fleet_file.service import ExportedFleet, FleetFileInput, FleetFileService
from domain.kernel.clock import to_iso
from domain.kernel.errors import ValidationFailed
from domain.kernel.unit_of_work import give_way, in_steps
from domain.rules.model import MAX_RULES_PER_DEVICE
from domain.schedules.model import SLOTS_PER_DEVICE
from domain.webhooks.model import WebhookFormat

Many = Field(max_length=MAX_OBJECTS)
DeviceReference = Annotated[str, Field(min_length=1, max_length=128, description="Its `externalId` or `deviceId`.")]
ProjectName = Annotated[DisplayName, Field(description="The name of a project.")]


class FleetProject(RequestBodyModel):
    name: DisplayName


class FleetDeviceType(RequestBodyModel):
    name: ShortText
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
    device_type: ShortText | None = Field(default=None, description="The name of a device type.")
    profile: EnumValue[FirmwareProfile] | None = None
    description: DescriptionText | None = None
    location: SingleLineText | None = None
    manufacturer: SingleLineText | None = None
    model: SingleLineText | None = None
    industry: SingleLineText | None = None
    tags: Tags | None = None
    channels: Channels | None = None
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


ItemT = TypeVar("ItemT", bound=BaseModel)
_PARTS = frozenset({"commands", "schedules", "rules"})
_DOMAIN_NAMES = {"expires_at": "expires_ms", "misfire_grace_seconds": "misfire_grace_s"}


async def to_fleet_request(body: FleetApplyRequest) -> FleetFileInput:
    """Raises ValidationFailed with the place in the body."""
    given = body.document
    sections: dict[FleetKind, Sequence[DesiredFleetObject]] = {}
    await _add(sections, FleetKind.PROJECTS, given.projects, _named)
    await _add(sections, FleetKind.DEVICE_TYPES, given.device_types, _device_type)
    of_types = {each.name: tuple(each.metrics or ()) for each in given.device_types or ()}
    await _add(sections, FleetKind.DEVICES, given.devices, partial(_device, of_types))
    await _add(sections, FleetKind.GROUPS, given.groups, _group)
    await _add(sections, FleetKind.API_KEYS, given.api_keys, _named)
    await _add(sections, FleetKind.GRANTS, given.grants, _grant)
    await _add(sections, FleetKind.WEBHOOKS, given.webhooks, _webhook)
    return FleetFileInput(FleetDocument(sections, given.project), body.prune, body.credentials)


async def _add(
    sections: dict[FleetKind, Sequence[DesiredFleetObject]],
    kind: FleetKind,
    given: Sequence[ItemT] | None,
    convert: Callable[[str, ItemT], DesiredFleetObject],
) -> None:
    if given is not None:
        found: list[DesiredFleetObject] = []
        for step in in_steps(given):
            found += [_converted(f"document.{kind}.{len(found) + index}", each, convert) for index, each in enumerate(step)]
            await give_way()
        sections[kind] = found


def _add_part(
    children: dict[FleetKind, Sequence[DesiredFleetObject]],
    kind: FleetKind,
    given: Sequence[ItemT] | None,
    convert: Callable[[str, ItemT], DesiredFleetObject],
    device: str,
) -> None:
    if given is not None:
        children[kind] = [_converted(f"{device}.{kind}.{index}", each, convert) for index, each in enumerate(given)]


def _converted(path: str, given: ItemT, convert: Callable[[str, ItemT], DesiredFleetObject]) -> DesiredFleetObject:
    try:
        return convert(path, given)
    except ValidationFailed as error:
        raise with_place(error, path) from None


def _wanted(path: str, key: Key, given: BaseModel, values: Mapping[str, Any]) -> DesiredFleetObject:
    named = {_DOMAIN_NAMES.get(name, name) for name in given.model_fields_set}
    return DesiredFleetObject(path, key, values, frozenset(named & values.keys()))


def _plain(given: BaseModel) -> dict[str, Any]:
    return {name: getattr(given, name) for name in type(given).model_fields}


def _shallow(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}


def _named(path: str, given: FleetProject | FleetApiKey) -> DesiredFleetObject:
    return _wanted(path, (given.name,), given, _plain(given))


def _device_type(path: str, given: FleetDeviceType) -> DesiredFleetObject:
    commands = tuple(sorted((each.to_input() for each in given.commands), key=lambda one: one.name))
    return _wanted(path, (given.name,), given, {"name": given.name, "commands": commands})


def _device(metrics_of_types: Mapping[str, tuple[str, ...]], path: str, given: FleetDevice) -> DesiredFleetObject:
    if given.external_id is None and given.device_id is None:
        raise ValidationFailed.for_field("externalId", "is required: your own id of the device, such as its serial number.")
    key = ("deviceId", given.device_id) if given.device_id is not None else ("externalId", str(given.external_id))
    values = {name: value for name, value in _plain(given).items() if name not in _PARTS | {"device_id"}}
    values["metrics"] = (*metrics_of_types.get(given.device_type or "", ()), *(given.metrics or ()))
    values["tags"] = tuple(dict.fromkeys(given.tags or ()))
    values["channels"] = channel_inputs(given.channels or ())
    values["profile"] = given.profile or infer_profile(given.board_type, given.app_type)
    wanted = _wanted(path, key, given, values)
    kept = {name for name in wanted.given if name not in ("project", "profile") or values[name] is not None}
    kept -= {"metrics"} if given.profile is not None else {"metrics", "profile"}
    children: dict[FleetKind, Sequence[DesiredFleetObject]] = {}
    _add_part(children, FleetKind.COMMANDS, given.commands, _command, path)
    _add_part(children, FleetKind.SCHEDULES, given.schedules, _schedule, path)
    _add_part(children, FleetKind.RULES, given.rules, _rule, path)
    return DesiredFleetObject(path, key, values, frozenset(kept), children)


def _command(path: str, given: CommandDefinitionCreateRequest) -> DesiredFleetObject:
    return _wanted(path, (given.name,), given, _shallow(given.to_input()))


def _schedule(path: str, given: ScheduleCreateRequest) -> DesiredFleetObject:
    return _wanted(path, (given.slot,), given, {"slot": given.slot, **_shallow(given.to_input())})


def _rule(path: str, given: RuleCreateRequest) -> DesiredFleetObject:
    return _wanted(path, (given.name,), given, given.to_fields())


def _group(path: str, given: FleetGroup) -> DesiredFleetObject:
    values = {**_plain(given), "devices": tuple(given.devices)}
    return _wanted(path, (given.project or "", given.name), given, values)


def _grant(path: str, given: FleetGrant) -> DesiredFleetObject:
    values = _shallow(given.to_content())
    values |= {name: getattr(given, name) for name in ("api_key", "member", "device", "group", "project")}
    values["commands"] = tuple(dict.fromkeys(values["commands"]))
    values["active_days"] = tuple(sorted(set(values["active_days"])))
    values["channels"] = tuple(sorted(set(values["channels"])))
    check_place(values)
    return _wanted(path, (given.api_key or given.member or "", path), given, values)


def _webhook(path: str, given: FleetWebhook) -> DesiredFleetObject:
    types = DEFAULT_TYPES if given.types is None else given.types
    return _wanted(path, (given.api_key, given.url), given, {**_plain(given), "types": tuple(sorted(set(types)))})


class FleetFieldChange(ResponseModel):
    field: str
    before: JsonValue
    after: JsonValue

    @classmethod
    def from_domain(cls, change: PlannedFieldChange) -> FleetFieldChange:
        before, after = (_file_value(change.name, value) for value in (change.before, change.after))
        return cls(field=_file_name(change.name), before=before, after=after)


class FleetObjectPlan(ResponseModel):
    """`name` is what the file calls it; `device` is the device that a command, schedule or rule belongs to."""

    section: FleetKind
    action: FleetAction
    path: str = Field(description="Its place in the request.", examples=["document.devices.0"])
    name: str
    device: str | None
    changes: list[FleetFieldChange]

    @classmethod
    def from_domain(cls, outcome: FleetObjectOutcome, **given: object) -> Self:
        changes = [FleetFieldChange.from_domain(each) for each in outcome.changes]
        return cls.of(outcome, section=outcome.kind, device=outcome.owner, changes=changes, **given)


class FleetObjectResult(FleetObjectPlan):
    id: str
    secret: str | None = Field(description="The secret of a new API key or webhook. Shown only in this response.")
    credentials: CredentialsResponse | None = Field(description="The new credentials of a device. Shown only in this response.")


class FleetCounts(ResponseModel):
    create: int
    change: int
    delete: int
    unchanged: int

    @classmethod
    def from_domain(cls, outcomes: Sequence[FleetObjectOutcome]) -> FleetCounts:
        actions = [each.action for each in outcomes]
        return cls(
            create=actions.count(FleetAction.CREATE),
            change=actions.count(FleetAction.CHANGE),
            delete=actions.count(FleetAction.DELETE),
            unchanged=actions.count(FleetAction.NONE),
        )


class FleetPlanResponse(ResponseModel):
    """`objects`: those that an apply would create, change or delete, in its order."""

    counts: FleetCounts
    objects: list[FleetObjectPlan]

    @classmethod
    async def from_domain(cls, outcomes: Sequence[FleetObjectOutcome]) -> FleetPlanResponse:
        planned: list[FleetObjectPlan] = []
        for step in in_steps(_differing(outcomes)):
            planned += map(FleetObjectPlan.from_domain, step)
            await give_way()
        return cls(counts=FleetCounts.from_domain(outcomes), objects=planned)


class FleetApplyResponse(ResponseModel):
    """`objects`: those that were created, changed or deleted."""

    counts: FleetCounts
    objects: list[FleetObjectResult]

    @classmethod
    async def from_domain(cls, outcomes: Sequence[FleetObjectOutcome]) -> FleetApplyResponse:
        made: list[FleetObjectResult] = []
        for step in in_steps(_differing(outcomes)):
            for each in step:
                shown = None if each.credentials is None else CredentialsResponse.from_domain(each.credentials)
                made.append(FleetObjectResult.from_domain(each, credentials=shown))
            await give_way()
        return cls(counts=FleetCounts.from_domain(outcomes), objects=made)


class FleetResponse(ResponseModel):
    document: dict[str, JsonValue] = Field(description="As `document` of an apply takes it.")
    left_out: list[FleetKind] = Field(description="Sections that you may not read. The document does not manage them.")

    @classmethod
    async def from_domain(
        cls, exported: ExportedFleet, project: str | None, sections: Mapping[FleetKind, Fields]
    ) -> FleetResponse:
        """`sections`: the default values of each, which the document leaves out."""
        document: dict[str, Any] = {"version": 1} if project is None else {"version": 1, "project": project}
        for kind, found in exported.sections.items():
            document[kind] = entries = []
            for step in in_steps(found):
                entries += [_entry(kind, each, sections) for each in step]
                await give_way()
        return cls(document=document, left_out=list(exported.left_out))


def _entry(kind: FleetKind, stored: StoredFleetObject, sections: Mapping[FleetKind, Fields]) -> dict[str, Any]:
    usual = sections[kind]
    entry = {
        _file_name(name): _file_value(name, value)
        for name, value in stored.fields.items()
        if name not in usual or value != usual[name]
    }
    for part, found in stored.children.items():
        if found:
            entry[part] = [_entry(part, each, sections) for each in found]
    return entry


def _differing(outcomes: Sequence[FleetObjectOutcome]) -> list[FleetObjectOutcome]:
    return [each for each in outcomes if each.action is not FleetAction.NONE]


_MODEL_NAMES = {theirs: ours for ours, theirs in _DOMAIN_NAMES.items()}


def _file_name(field: str) -> str:
    return to_camel(_MODEL_NAMES.get(field, field))


def _file_value(field: str, value: Any) -> Any:
    """As JSON. What a nested object has by default is left out."""
    if isinstance(value, Enum):
        return value.value
    if field.endswith("_ms") and value is not None:
        return to_iso(value)
    if is_dataclass(value):
        parts = [(one, getattr(value, one.name)) for one in fields(value)]
        return {
            _file_name(one.name): _file_value(one.name, part)
            for one, part in parts
            if one.default is MISSING or part != one.default
        }
    if isinstance(value, tuple):
        return [_file_value("", each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


_ERRORS = {
    400: "UNKNOWN_METRIC COMMAND_NEEDS_APPROVAL UNKNOWN_CHANNEL UNKNOWN_COMMAND INVALID_PARAMS",
    403: "ROLE_REQUIRED OPERATION_NOT_ALLOWED GRANT_MISSING COMMAND_NOT_GRANTED CHANNEL_NOT_GRANTED SCOPE_TOO_NARROW "
    "GRANT_EXPIRED STEP_UP_REQUIRED",
    409: "CONFLICT EXTERNAL_ID_TAKEN PROJECT_EXISTS DEVICE_TYPE_EXISTS COMMAND_EXISTS GROUP_EXISTS SLOT_TAKEN REQUEST_PENDING "
    "PROJECT_EMPTY PROJECT_NOT_EMPTY DEFAULT_PROJECT DEVICE_TYPE_IN_USE PROJECT_LIMIT TOO_MANY_DEVICE_TYPES TOO_MANY_DEVICES "
    "TOO_MANY_COMMANDS TOO_MANY_RULES GROUP_LIMIT GROUP_FULL KEY_LIMIT GRANT_LIMIT WEBHOOK_LIMIT",
}
"""Of the single calls that a file stands for, and a few of its own."""


def fleet_blueprint(fleet: FleetFileService) -> ApiBlueprint:
    bp = ApiBlueprint("fleet", "Fleet")

    @bp.operation("GET /fleet", AllowedCallers.SESSION, "Export the fleet", errors={409: "FLEET_TOO_LARGE"}, turn=TurnKind.BULK)
    async def export_fleet(query: FleetExportQueryParameters) -> FleetResponse:
        """The account as a document, without what you may not read. Planned again, it changes nothing."""
        exported = await fleet.export(current_session(), query.project)
        return await FleetResponse.from_domain(exported, query.project, fleet.defaults)

    @bp.operation("POST /fleet/plan", AllowedCallers.SESSION, "Plan a change of the fleet", errors=_ERRORS, turn=TurnKind.BULK)
    async def plan_fleet(body: FleetApplyRequest) -> FleetPlanResponse:
        """What an apply of this document would do, or the error that it would answer with. Nothing is changed."""
        return await FleetPlanResponse.from_domain(await fleet.plan(current_session(), await to_fleet_request(body)))

    @bp.operation(
        "POST /fleet/apply",
        AllowedCallers.SESSION,
        "Apply a fleet",
        errors=_ERRORS,
        idempotent=True,
        turn=TurnKind.BULK,
        authority=AuthorityMade(
            "key_created",
            "DELETE /keys/{keyId}",
            when="keys, grants or webhooks are made, enabled or widened, or credentials replaced",
        ),
    )
    async def apply_fleet(body: FleetApplyRequest) -> FleetApplyResponse:
        """Makes and changes what the document names, in one transaction: all of it or nothing. Each change needs what its single
        call needs. Repeat a request whose answer was lost with its `Idempotency-Key`: secrets are in the first answer only."""
        return await FleetApplyResponse.from_domain(await fleet.apply(current_session(), await to_fleet_request(body)))

    return bp
