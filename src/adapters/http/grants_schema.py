"""The shapes of grants on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from adapters.http.schema import Body, Change, Query, Reply, Timestamp, instant
from domain.grants.access import Explanation, Finding
from domain.grants.draft import MAX_COMMANDS, MAX_RATE, Draft, Terms
from domain.grants.granting import Granted, NamedGrant
from domain.grants.model import AppliesVia, Scope
from domain.kernel.clock import iso
from domain.kernel.ids import KeyId, MembershipId

Commands = Annotated[
    list[Annotated[str, Field(max_length=64)]],
    Field(max_length=MAX_COMMANDS, examples=[["ON", "OFF"]], description='Names of commands, or `["*"]` for all.'),
]
Day = Annotated[int, Field(ge=0, le=6)]
Days = Annotated[list[Day], Field(max_length=7, description="0 = Sunday to 6 = Saturday; empty for every day.")]
Minute = Annotated[int, Field(ge=0, le=1439, description="Minute of the local day.")]
Rate = Annotated[int, Field(ge=1, le=MAX_RATE, description="Commands in any 60 seconds.")]
Zone = Annotated[str, Field(max_length=64, examples=["Europe/Berlin"], description="An IANA time zone.")]
_RENAMED = {"expires_at": "expires_ms"}


class NewGrant(Body):
    """Exactly one of `apiKeyId` and `membershipId`."""

    commands: Commands
    api_key_id: str | None = Field(default=None, max_length=64)
    membership_id: str | None = Field(default=None, max_length=64)
    applies_via: AppliesVia = Field(default=AppliesVia.DEVICE, description="`project`: the device's whole project.")
    scope: Scope = Field(default=Scope.WRITE, description="`READ` covers reads and QUERY commands only.")
    expires_at: Timestamp | None = None
    active_days: Days | None = None
    active_from_minute: Minute | None = None
    active_to_minute: Minute | None = Field(default=None, description="Below the from-minute: past midnight.")
    timezone: Zone = "UTC"
    rate_limit_per_minute: Rate | None = None

    def draft(self) -> Draft:
        return Draft(
            terms=Terms(
                commands=tuple(self.commands),
                scope=self.scope,
                expires_ms=None if self.expires_at is None else instant("expiresAt", self.expires_at),
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


class GrantChanges(Change):
    """What is left out stays; `null` takes a limit away. For another subject or reach, make another grant."""

    nullable = frozenset({"expires_at", "active_days", "active_from_minute", "active_to_minute", "rate_limit_per_minute"})

    commands: Commands | None = None
    scope: Scope | None = None
    expires_at: Timestamp | None = None
    active_days: Days | None = None
    active_from_minute: Minute | None = None
    active_to_minute: Minute | None = None
    timezone: Zone | None = None
    rate_limit_per_minute: Rate | None = None

    def changes(self) -> dict[str, Any]:
        """By the names of `Terms`."""
        given: dict[str, Any] = {}
        for name in self.model_fields_set:
            value = getattr(self, name)
            if name == "active_days":
                value = tuple(value or ())
            elif name == "commands":
                value = tuple(value)
            elif name == "expires_at" and value is not None:
                value = instant("expiresAt", value)
            given[_RENAMED.get(name, name)] = value
        return given


class SubjectReply(Reply):
    type: Literal["apikey", "member"]
    id: str
    name: str


class GrantReply(Reply):
    grant_id: str
    applies_via: AppliesVia
    subject: SubjectReply
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
    def of(cls, named: NamedGrant) -> GrantReply:
        grant = named.grant
        return cls(
            grant_id=grant.grant_id,
            applies_via=grant.applies_via,
            subject=SubjectReply(
                type="apikey" if grant.subject.key_id is not None else "member",
                id=grant.subject.key_id or grant.subject.membership_id or "",
                name=named.subject_name,
            ),
            commands=list(grant.commands),
            scope=grant.scope,
            expires_at=None if grant.expires_ms is None else iso(grant.expires_ms),
            active_days=sorted(grant.window.active_days),
            active_from_minute=grant.window.from_minute,
            active_to_minute=grant.window.to_minute,
            timezone=grant.window.timezone,
            rate_limit_per_minute=grant.rate_limit_per_minute,
            created_at=iso(grant.created_ms),
        )


class Warned(Reply):
    """Allowed, but maybe not meant."""

    field: str
    message: str

    @classmethod
    def all_of(cls, granted: Granted) -> list[Warned]:
        return [cls(field=fault.field, message=fault.message) for fault in granted.warnings]


class GrantCreated(Reply):
    grant_id: str


class GrantCreatedWarned(GrantCreated):
    """Created, with what may not be meant."""

    details: list[Warned]


class GrantChanged(Reply):
    ok: bool = True


class GrantChangedWarned(GrantChanged):
    """Changed, with what may not be meant."""

    details: list[Warned]


class AccessQuery(Query):
    """At most one of `apiKeyId` and `membershipId`; neither asks about the caller. Without `cmd`: about reading."""

    cmd: str | None = Field(default=None, min_length=1, max_length=64)
    api_key_id: str | None = Field(default=None, max_length=64)
    membership_id: str | None = Field(default=None, max_length=64)


class FindingReply(Reply):
    grant_id: str
    allowed: bool
    code: str | None
    message: str
    passes_at: Timestamp | None

    @classmethod
    def of(cls, finding: Finding) -> FindingReply:
        return cls(
            grant_id=finding.grant.grant_id,
            allowed=finding.code is None,
            code=finding.code,
            message=finding.message,
            passes_at=None if finding.passes_ms is None else iso(finding.passes_ms),
        )


class AccessReply(Reply):
    """`code` is what a refused call would answer; `passesAt` when it would pass by waiting alone."""

    allowed: bool
    waits_for_approval: bool = Field(description="It would pass, but only once an Owner or Admin has approved it.")
    code: str | None
    message: str
    passes_at: Timestamp | None
    grant_id: str | None = Field(description="The grant that lets it pass, or comes nearest.")
    grants: list[FindingReply]

    @classmethod
    def of(cls, told: Explanation) -> AccessReply:
        return cls(
            allowed=told.allowed,
            waits_for_approval=told.waits_for_approval,
            code=told.code,
            message=told.message,
            passes_at=None if told.passes_ms is None else iso(told.passes_ms),
            grant_id=None if told.grant is None else told.grant.grant_id,
            grants=[FindingReply.of(finding) for finding in told.findings],
        )
