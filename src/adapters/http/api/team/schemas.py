"""Request and response models of team members."""

from __future__ import annotations

from pydantic import Field

from adapters.http.core.schemas import DisplayName, EnumValue, PatchBody, RequestBodyModel, ResponseModel, Timestamp
from domain.accounts.model import MembershipWithUser
from domain.kernel.caller import Role


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


def member_response(member: MembershipWithUser) -> MemberResponse:
    return MemberResponse.of(member.membership, member.user)
