"""The shapes of grants on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from adapters.http.core.request_parsing import parse_timestamp
from adapters.http.core.schemas import EnumValue, PatchBody, QueryParameters, RequestBody, ResponseModel, Timestamp
from domain.grants.access_explanation import AccessExplanation, GrantCheckResult
from domain.grants.grant_input import MAX_COMMANDS, MAX_RATE_PER_MINUTE, GrantDraft, GrantInput
from domain.grants.grant_service import GrantListItem, GrantWithWarnings
from domain.grants.model import AppliesVia, Grant, Scope
from domain.kernel.clock import to_iso
from domain.kernel.ids import DeviceId, KeyId, MembershipId, ProjectId

CommandNames = Annotated[
    list[Annotated[str, Field(max_length=64)]],
    Field(max_length=MAX_COMMANDS, examples=[["ON", "OFF"]], description='Names of commands, or `["*"]` for all.'),
]
Weekday = Annotated[int, Field(ge=0, le=6)]
Weekdays = Annotated[list[Weekday], Field(max_length=7, description="0 = Sunday to 6 = Saturday; empty for every day.")]
MinuteOfDay = Annotated[int, Field(ge=0, le=1439, description="Minute of the local day.")]
RatePerMinute = Annotated[int, Field(ge=1, le=MAX_RATE_PER_MINUTE, description="Commands in any 60 seconds.")]
TimeZoneName = Annotated[str, Field(max_length=64, examples=["Europe/Berlin"], description="An IANA time zone.")]
_DOMAIN_FIELD_NAMES = {"expires_at": "expires_ms"}


class GrantCreateRequest(RequestBody):
    """Exactly one of `apiKeyId` and `membershipId`."""

    commands: CommandNames
    api_key_id: str | None = Field(default=None, max_length=64)
    membership_id: str | None = Field(default=None, max_length=64)
    applies_via: EnumValue[AppliesVia] = Field(default=AppliesVia.DEVICE, description="`project`: the device's whole project.")
    scope: EnumValue[Scope] = Field(default=Scope.WRITE, description="`READ` covers reads and QUERY commands only.")
    expires_at: Timestamp | None = None
    active_days: Weekdays | None = None
    active_from_minute: MinuteOfDay | None = None
    active_to_minute: MinuteOfDay | None = Field(default=None, description="Below the from-minute: past midnight.")
    timezone: TimeZoneName = "UTC"
    rate_limit_per_minute: RatePerMinute | None = None

    def to_input(self) -> GrantDraft:
        return GrantDraft(
            input=GrantInput(
                commands=tuple(self.commands),
                scope=self.scope,
                expires_ms=None if self.expires_at is None else parse_timestamp("expiresAt", self.expires_at),
                active_days=tuple(self.active_days or ()),
                active_from_minute=self.active_from_minute,
                active_to_minute=self.active_to_minute,
                timezone=self.timezone,
                rate_limit_per_minute=self.rate_limit_per_minute,
            ),
            key_id=None if self.api_key_id is None else KeyId(self.api_key_id),
            membership_id=None if self.membership_id is None else MembershipId(self.membership_id),
            applies_via=self.applies_via,
        )


class GrantUpdateRequest(PatchBody):
    """What is left out stays; `null` takes a limit away. For another subject or reach, make another grant."""

    nullable = frozenset({"expires_at", "active_days", "active_from_minute", "active_to_minute", "rate_limit_per_minute"})

    commands: CommandNames | None = None
    scope: EnumValue[Scope] | None = None
    expires_at: Timestamp | None = None
    active_days: Weekdays | None = None
    active_from_minute: MinuteOfDay | None = None
    active_to_minute: MinuteOfDay | None = None
    timezone: TimeZoneName | None = None
    rate_limit_per_minute: RatePerMinute | None = None

    def to_changes(self) -> dict[str, Any]:
        """By the names of `Terms`."""
        given: dict[str, Any] = {}
        for name in self.model_fields_set:
            value = getattr(self, name)
            if name == "active_days":
                value = tuple(value or ())
            elif name == "commands":
                value = tuple(value)
            elif name == "expires_at" and value is not None:
                value = parse_timestamp("expiresAt", value)
            given[_DOMAIN_FIELD_NAMES.get(name, name)] = value
        return given


class GrantSubjectResponse(ResponseModel):
    type: Literal["apikey", "member"]
    id: str
    name: str


class GrantResponse(ResponseModel):
    grant_id: str
    applies_via: AppliesVia
    subject: GrantSubjectResponse
    commands: list[str]
    scope: Scope
    expires_at: Timestamp | None
    active_days: list[int]
    active_from_minute: int | None
    active_to_minute: int | None
    timezone: str
    rate_limit_per_minute: int | None
    created_at: Timestamp

    @classmethod
    def from_domain(cls, named: GrantListItem) -> GrantResponse:
        grant = named.grant
        return cls(
            grant_id=grant.grant_id,
            applies_via=grant.applies_via,
            subject=GrantSubjectResponse(
                type="apikey" if grant.subject.key_id is not None else "member",
                id=grant.subject.key_id or grant.subject.membership_id or "",
                name=named.subject_name,
            ),
            commands=list(grant.commands),
            scope=grant.scope,
            expires_at=None if grant.expires_ms is None else to_iso(grant.expires_ms),
            active_days=sorted(grant.window.active_days),
            active_from_minute=grant.window.from_minute,
            active_to_minute=grant.window.to_minute,
            timezone=grant.window.timezone,
            rate_limit_per_minute=grant.rate_limit_per_minute,
            created_at=to_iso(grant.created_ms),
        )


class GrantWarningResponse(ResponseModel):
    """Allowed, but maybe not meant."""

    field: str
    message: str

    @classmethod
    def list_from_domain(cls, granted: GrantWithWarnings) -> list[GrantWarningResponse]:
        return [cls(field=fault.field, message=fault.message) for fault in granted.warnings]


class GrantCreatedResponse(ResponseModel):
    grant_id: str


class GrantCreatedWithWarningsResponse(GrantCreatedResponse):
    """Created, with what may not be meant."""

    details: list[GrantWarningResponse]


class GrantUpdatedResponse(ResponseModel):
    ok: bool = True


class GrantUpdatedWithWarningsResponse(GrantUpdatedResponse):
    """Changed, with what may not be meant."""

    details: list[GrantWarningResponse]


class AccessExplanationQuery(QueryParameters):
    """At most one of `apiKeyId` and `membershipId`; neither asks about the caller. Without `cmd`: about reading."""

    cmd: str | None = Field(default=None, min_length=1, max_length=64)
    api_key_id: str | None = Field(default=None, max_length=64)
    membership_id: str | None = Field(default=None, max_length=64)


class GrantCheckResponse(ResponseModel):
    grant_id: str
    allowed: bool
    code: str | None
    message: str
    passes_at: Timestamp | None

    @classmethod
    def from_domain(cls, finding: GrantCheckResult) -> GrantCheckResponse:
        return cls(
            grant_id=finding.grant.grant_id,
            allowed=finding.code is None,
            code=finding.code,
            message=finding.message,
            passes_at=None if finding.passes_from_ms is None else to_iso(finding.passes_from_ms),
        )


class AccessExplanationResponse(ResponseModel):
    """`code` is what a refused call would answer; `passesAt` when it would pass by waiting alone."""

    allowed: bool
    waits_for_approval: bool = Field(description="It would pass, but only once an Owner or Admin has approved it.")
    code: str | None
    message: str
    passes_at: Timestamp | None
    grant_id: str | None = Field(description="The grant that lets it pass, or comes nearest.")
    grants: list[GrantCheckResponse]

    @classmethod
    def from_domain(cls, told: AccessExplanation) -> AccessExplanationResponse:
        return cls(
            allowed=told.allowed,
            waits_for_approval=told.needs_approval,
            code=told.code,
            message=told.message,
            passes_at=None if told.passes_from_ms is None else to_iso(told.passes_from_ms),
            grant_id=None if told.grant is None else told.grant.grant_id,
            grants=[GrantCheckResponse.from_domain(finding) for finding in told.grant_results],
        )


class GrantedDeviceResponse(ResponseModel):
    device_id: str
    name: str


class GrantedProjectResponse(ResponseModel):
    project_id: str
    name: str


class ApiKeyGrantResponse(ResponseModel):
    grant_id: str
    applies_via: AppliesVia
    device: GrantedDeviceResponse | None
    project: GrantedProjectResponse | None
    commands: list[str]
    scope: Scope
    expires_at: Timestamp | None
    rate_limit_per_minute: int | None
    created_at: Timestamp


def api_key_grant_response(grant: Grant, devices: dict[DeviceId, str], projects: dict[ProjectId, str]) -> ApiKeyGrantResponse:
    device, project = grant.device_id, grant.project_id
    return ApiKeyGrantResponse(
        grant_id=grant.grant_id,
        applies_via=grant.applies_via,
        device=None if device is None else GrantedDeviceResponse(device_id=device, name=devices.get(device, "")),
        project=None if project is None else GrantedProjectResponse(project_id=project, name=projects.get(project, "")),
        commands=list(grant.commands),
        scope=grant.scope,
        expires_at=None if grant.expires_ms is None else to_iso(grant.expires_ms),
        rate_limit_per_minute=grant.rate_limit_per_minute,
        created_at=to_iso(grant.created_ms),
    )
