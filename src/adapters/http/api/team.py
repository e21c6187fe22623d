"""The members of the account."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, AuthorityMade, HttpHandlerResult
from adapters.http.core.paging import SearchPageQueryParameters, list_response
from adapters.http.core.schemas import DisplayName, EnumValue, PatchBody, RequestBodyModel, ResponseModel, Timestamp
from domain.accounts.model import MembershipWithUser
from domain.kernel.caller import Role
from domain.team.members import MemberService


class MemberCreateRequest(RequestBodyModel):
    email: str = Field(max_length=254, examples=["grace@example.com"])
    name: DisplayName
    role: EnumValue[Role]
    password: str = Field(min_length=8, max_length=256)


class MemberUpdateRequest(PatchBody):
    role: EnumValue[Role] | None = None
    name: DisplayName | None = None


class MemberResponse(ResponseModel):
    membership_id: str
    user_id: str
    email: str
    name: str
    role: Role
    created_at: Timestamp

    @classmethod
    def from_domain(cls, member: MembershipWithUser) -> MemberResponse:
        return cls.of(member.membership, member.user)


def team_blueprint(*, team: MemberService[Any]) -> ApiBlueprint:
    bp = ApiBlueprint("team", "Team")

    @bp.operation("GET /members", AllowedCallers.SESSION, "List members")
    async def list_members(query: SearchPageQueryParameters) -> HttpHandlerResult[list[MemberResponse]]:
        """Oldest first. Every role may list them."""
        found = await team.list_members(current_session())
        names = ("user.name", "user.email")
        return list_response(
            found,
            query,
            MemberResponse.from_domain,
            lambda member: (member.membership.created_ms, member.membership.membership_id),
            names,
        )

    @bp.operation("GET /members/<membership_id>", AllowedCallers.SESSION, "Get a member")
    async def get_member(membership_id: str) -> MemberResponse:
        """Every role may."""
        return MemberResponse.from_domain(await team.get_member(current_session(), membership_id))

    @bp.operation(
        "POST /members",
        AllowedCallers.SESSION,
        "Add a member",
        status=201,
        idempotent=True,
        errors={400: "PASSWORD_WEAK", 403: "ROLE_REQUIRED", 409: "EMAIL_TAKEN MEMBER_EXISTS MEMBER_LIMIT"},
        authority=AuthorityMade("member_changed", "DELETE /members/{membershipId}"),
    )
    async def create_member(body: MemberCreateRequest) -> MemberResponse:
        """Requires the role Admin or Owner; only an Owner can add an Owner."""
        added = await team.add_member(current_session(), email=body.email, name=body.name, role=body.role, password=body.password)
        return MemberResponse.from_domain(added)

    @bp.operation(
        "PATCH /members/<membership_id>",
        AllowedCallers.SESSION,
        "Change a member's role or name",
        errors={403: "ROLE_REQUIRED", 409: "LAST_OWNER"},
        authority=AuthorityMade("member_changed", "PATCH /members/{membershipId}", when="the role is another one"),
    )
    async def update_member(membership_id: str, body: MemberUpdateRequest) -> MemberResponse:
        """Requires the role Admin or Owner; only an Owner can change an Owner. The last Owner keeps the role."""
        return MemberResponse.from_domain(
            await team.update_member(current_session(), membership_id, role=body.role, name=body.name)
        )

    @bp.operation(
        "DELETE /members/<membership_id>",
        AllowedCallers.SESSION,
        "Remove a member",
        errors={403: "ROLE_REQUIRED", 409: "LAST_OWNER"},
    )
    async def delete_member(membership_id: str) -> None:
        """Ends the member's grants and sessions. Requires the role Admin or Owner; only an Owner removes an Owner."""
        await team.remove_member(current_session(), membership_id)

    return bp
