"""Grants on a device or its project, and why a call is allowed or not. An API key may ask that of itself; all else is for
Admins and Owners."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from adapters.http.core.callers import AllowedCallers, current_caller, current_session
from adapters.http.core.operation import ApiBlueprint, AuthorityMade, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response
from adapters.http.core.parsing import parse_timestamp
from adapters.http.core.schemas import (
    ChannelNumber,
    ChannelNumbers,
    EndedAt,
    EndingResponse,
    EnumValue,
    PatchBody,
    QueryParametersModel,
    RequestBodyModel,
    ResponseModel,
    Timestamp,
    TimestampText,
    is_none,
)
from domain.devices.channels import RELAY_CHANNEL
from domain.grants.explanation import AccessExplainer, AccessExplanation, SingleGrantResult
from domain.grants.model import AppliesVia, Grant, Scope
from domain.grants.service import MAX_COMMANDS, MAX_RATE_PER_MINUTE, GrantInput, GrantService, NewGrantInput
from domain.kernel.ids import DeviceId, GrantId, KeyId, MembershipId

CommandNames = Annotated[
    list[Annotated[str, Field(max_length=64)]],
    Field(max_length=MAX_COMMANDS, examples=[["ON", "OFF"]], description='Names of the allowed commands, or `["*"]` for all.'),
]
Weekday = Annotated[int, Field(ge=0, le=6)]
Weekdays = Annotated[
    list[Weekday], Field(max_length=7, description="Days of the week, 0 = Sunday to 6 = Saturday. Empty: every day.")
]
MinuteOfDay = Annotated[int, Field(ge=0, le=1439, description="Minute of the day in `timezone`, 0 to 1439.")]
RatePerMinute = Annotated[int, Field(ge=1, le=MAX_RATE_PER_MINUTE, description="Maximum number of commands in any 60 seconds.")]
TimeZoneName = Annotated[str, Field(min_length=1, max_length=64, examples=["Europe/Berlin"], description="An IANA time zone.")]


class GrantBody(RequestBodyModel):
    """What a grant allows, and when."""

    commands: CommandNames
    scope: EnumValue[Scope] = Field(default=Scope.WRITE, description="`READ` covers reads and QUERY commands only.")
    expires_at: TimestampText | None = None
    active_days: Weekdays | None = None
    active_from_minute: MinuteOfDay | None = None
    active_to_minute: MinuteOfDay | None = Field(
        default=None, description="Exclusive. A value below `activeFromMinute` means after midnight."
    )
    timezone: TimeZoneName = "UTC"
    rate_limit_per_minute: RatePerMinute | None = None
    channels: ChannelNumbers = Field(default_factory=list)

    def to_content(self) -> GrantInput:
        return self.to_domain(
            GrantInput,
            commands=tuple(self.commands),
            channels=tuple(self.channels),
            expires_ms=None if self.expires_at is None else parse_timestamp("expiresAt", self.expires_at),
            active_days=tuple(self.active_days or ()),
        )


class GroupGrantCreateRequest(GrantBody):
    """Give exactly one of `apiKeyId` and `membershipId`."""

    api_key_id: KeyId | None = Field(default=None, max_length=64)
    membership_id: MembershipId | None = Field(default=None, max_length=64)

    def to_input(self) -> NewGrantInput:
        return NewGrantInput(self.to_content(), self.api_key_id, self.membership_id)


class GrantCreateRequest(GroupGrantCreateRequest):
    """Give exactly one of `apiKeyId` and `membershipId`."""

    applies_via: Literal["device", "project"] = Field(
        default="device", description="`project`: the grant applies to the device's whole project."
    )

    def to_input(self) -> NewGrantInput:
        return replace(super().to_input(), applies_via=AppliesVia(self.applies_via))


class GrantUpdateRequest(PatchBody):
    """Omitted fields keep their value; `null` removes a limit. To change the subject or `appliesVia`, create another grant."""

    nullable = frozenset({"expires_at", "active_days", "active_from_minute", "active_to_minute", "rate_limit_per_minute"})

    commands: CommandNames | None = None
    scope: EnumValue[Scope] | None = None
    expires_at: TimestampText | None = None
    active_days: Weekdays | None = None
    active_from_minute: MinuteOfDay | None = None
    active_to_minute: MinuteOfDay | None = None
    timezone: TimeZoneName | None = None
    rate_limit_per_minute: RatePerMinute | None = None
    channels: ChannelNumbers | None = None

    def to_changes(self) -> dict[str, Any]:
        """The changed fields by their names in `GrantInput`."""
        given = super().to_changes()
        for name in given.keys() & {"active_days", "commands", "channels"}:
            given[name] = tuple(given[name] or ())
        if "expires_at" in given:
            text = given.pop("expires_at")
            given["expires_ms"] = None if text is None else parse_timestamp("expiresAt", text)
        return given


class GrantSubjectResponse(ResponseModel):
    type: Literal["apikey", "member"]
    id: str
    name: str


class GrantResponse(EndingResponse):
    grant_id: str
    applies_via: AppliesVia
    subject: GrantSubjectResponse
    commands: list[str]
    scope: Scope
    expires_at: Timestamp | None
    ended_at: EndedAt
    active_days: list[int]
    active_from_minute: int | None
    active_to_minute: int | None
    timezone: str
    rate_limit_per_minute: int | None
    channels: list[int] = Field(description="The channels that it covers; empty: all.")
    created_at: Timestamp

    @classmethod
    def from_domain(cls, named: tuple[Grant, str], **given: object) -> Self:
        grant, name = named
        subject = GrantSubjectResponse(
            type="apikey" if grant.subject.key_id is not None else "member",
            id=grant.subject.key_id or grant.subject.membership_id or "",
            name=name,
        )
        return cls.of(
            grant,
            subject=subject,
            active_days=sorted(grant.window.active_days),
            active_from_minute=grant.window.from_minute,
            active_to_minute=grant.window.to_minute,
            timezone=grant.window.timezone,
            **given,
        )


class GrantWarningResponse(ResponseModel):
    """A warning about a value that is valid but may be a mistake."""

    field: str
    message: str


class GrantCreatedResponse(GrantResponse):
    details: list[GrantWarningResponse] | None = Field(default=None, exclude_if=is_none, description="Warnings, if any.")


class GrantChangedResponse(GrantCreatedResponse):
    ok: bool = True


class AccessExplanationQueryParameters(QueryParametersModel):
    """At most one of `apiKeyId` and `membershipId`; without both, the caller. Without `cmd`, read access is explained. An API key
    asks for itself only."""

    cmd: str | None = Field(default=None, min_length=1, max_length=64)
    channel: ChannelNumber = RELAY_CHANNEL
    api_key_id: KeyId | None = Field(default=None, max_length=64)
    membership_id: MembershipId | None = Field(default=None, max_length=64)
    address: str | None = Field(
        default=None, max_length=64, description="Where the API key would call from: an IP address, checked against its networks."
    )


class GrantCheckResponse(ResponseModel):
    grant_id: str
    allowed: bool
    code: str | None
    message: str
    passes_at: Timestamp | None

    @classmethod
    def from_domain(cls, result: SingleGrantResult) -> GrantCheckResponse:
        return cls.of(result, grant_id=result.grant.grant_id, allowed=result.code is None, passes_at=result.passes_from_ms)


class AccessExplanationResponse(ResponseModel):
    """`code` is the error code of a denied call; `passesAt` is when the same call would be allowed without any change."""

    allowed: bool
    waits_for_approval: bool = Field(description="The call is allowed but needs the approval of an Owner or Admin.")
    device_takes_commands: bool = Field(description="Whether the device is ACTIVE; if not, each command is refused.")
    code: str | None
    message: str
    passes_at: Timestamp | None
    grant_id: str | None = Field(description="The grant that allows the call, or comes closest to it.")
    grants: list[GrantCheckResponse]
    expires_at: Timestamp | None = Field(description="When the API key ends; null without an end, and for a member.")
    allowed_networks: list[str] = Field(
        description="The networks that the API key works from, which count only if `address` is given; empty: from everywhere."
    )

    @classmethod
    def from_domain(cls, explanation: AccessExplanation) -> AccessExplanationResponse:
        return cls.of(
            explanation,
            waits_for_approval=explanation.needs_approval,
            device_takes_commands=explanation.device_is_active,
            passes_at=explanation.passes_from_ms,
            grant_id=None if explanation.grant is None else explanation.grant.grant_id,
            grants=[GrantCheckResponse.from_domain(result) for result in explanation.grant_results],
        )


GRANT_ERRORS = {403: "ROLE_REQUIRED"}


def grants_blueprint(grants: GrantService[Any], access: AccessExplainer[Any]) -> ApiBlueprint:
    bp = ApiBlueprint("grants", "Grants")

    @bp.operation("GET /devices/<device_id>/grants", AllowedCallers.SESSION, "List a device's grants", errors=GRANT_ERRORS)
    async def list_grants(device_id: DeviceId, query: PageQueryParameters) -> HttpHandlerResult[list[GrantResponse]]:
        """Oldest first, including grants on the device's whole project. Requires the role Admin or Owner."""
        grants_on_device = await grants.list(current_session(), device_id)
        return list_response(
            grants_on_device, query, GrantResponse.from_domain, lambda named: (named[0].created_ms, named[0].grant_id)
        )

    @bp.operation(
        "GET /devices/<device_id>/access",
        AllowedCallers.KEY,
        "Explain an access decision",
        errors={400: "UNKNOWN_CHANNEL UNKNOWN_COMMAND", 403: "ROLE_REQUIRED SESSION_REQUIRED"},
    )
    async def explain_access(device_id: DeviceId, query: AccessExplanationQueryParameters) -> AccessExplanationResponse:
        """Returns the grant that allows the call, or the first check that fails and when it would pass: an API key that is
        disabled, has ended or calls from a network that it may not use is refused whatever its grants say. Does not count against
        a rate limit. An API key can ask for itself before it acts."""
        explanation = await access.explain(
            current_caller(),
            device_id,
            command=query.cmd,
            channel=query.channel,
            key_id=query.api_key_id,
            membership_id=query.membership_id,
            address=query.address,
        )
        return AccessExplanationResponse.from_domain(explanation)

    @bp.operation(
        "POST /devices/<device_id>/grants",
        AllowedCallers.SESSION,
        "Create a grant",
        status=201,
        errors={**GRANT_ERRORS, 409: "GRANT_LIMIT REQUEST_PENDING"},
        authority=AuthorityMade("grant_created", "DELETE /devices/{deviceId}/grants/{grantId}"),
        idempotent=True,
    )
    async def create_grant(device_id: DeviceId, body: GrantCreateRequest) -> GrantCreatedResponse:
        """A grant may name a command that the device does not have; `details` then contains a warning. Requires the role Admin or
        Owner."""
        granted = await grants.create(current_session(), device_id, body.to_input())
        shown = await grants.get(current_session(), device_id, granted.grant.grant_id)
        return GrantCreatedResponse.from_domain(shown, details=granted.warnings or None)

    @bp.operation("GET /devices/<device_id>/grants/<grant_id>", AllowedCallers.SESSION, "Get a grant", errors=GRANT_ERRORS)
    async def get_grant(device_id: DeviceId, grant_id: GrantId) -> GrantResponse:
        """One on the device, or on its project or a group of it. Requires the role Admin or Owner."""
        return GrantResponse.from_domain(await grants.get(current_session(), device_id, grant_id))

    @bp.operation(
        "PATCH /devices/<device_id>/grants/<grant_id>",
        AllowedCallers.SESSION,
        "Change a grant",
        errors={**GRANT_ERRORS, 409: "REQUEST_PENDING"},
        authority=AuthorityMade("grant_updated", "DELETE /devices/{deviceId}/grants/{grantId}", when="the grant becomes wider"),
    )
    async def update_grant(device_id: DeviceId, grant_id: GrantId, body: GrantUpdateRequest) -> GrantChangedResponse:
        """Takes effect with the next call. Requires the role Admin or Owner."""
        granted = await grants.update(current_session(), device_id, grant_id, body.to_changes())
        shown = await grants.get(current_session(), device_id, grant_id)
        return GrantChangedResponse.from_domain(shown, details=granted.warnings or None)

    @bp.operation("DELETE /devices/<device_id>/grants/<grant_id>", AllowedCallers.SESSION, "Delete a grant", errors=GRANT_ERRORS)
    async def delete_grant(device_id: DeviceId, grant_id: GrantId) -> None:
        """Takes effect with the next call. Deleting a project-wide grant affects the whole project. Requires the role Admin or
        Owner."""
        await grants.delete(current_session(), device_id, grant_id)

    return bp
