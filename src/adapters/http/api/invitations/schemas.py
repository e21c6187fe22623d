"""Request and response models of invitations."""

from __future__ import annotations

from pydantic import Field

from adapters.http.core.schemas import DisplayName, EnumValue, RequestBodyModel, ResponseModel, Timestamp
from domain.kernel.caller import Role
from domain.team.invitations import InvitationResult, InvitationStatus


class InvitationCreateRequest(RequestBodyModel):
    email: str = Field(max_length=254, examples=["grace@example.com"])
    name: DisplayName
    role: EnumValue[Role]


class InvitationPreviewRequest(RequestBodyModel):
    token: str = Field(min_length=1, max_length=128, description="The end of the link.")


class InvitationAcceptRequest(InvitationPreviewRequest):
    password: str = Field(min_length=8, max_length=256, description="The password of the new member.")
    name: DisplayName | None = Field(default=None, description="Instead of the name in the invitation.")


class InvitationResponse(ResponseModel):
    invitation_id: str
    email: str
    name: str
    role: Role
    status: InvitationStatus = Field(
        description="VOID: whoever sent it may not give this role any more. Sending it again makes it valid."
    )
    invited_by: str = Field(description="The membership that sent it last.")
    created_at: Timestamp
    expires_at: Timestamp


class InvitationSentResponse(ResponseModel):
    invitation_id: str
    email: str
    expires_at: Timestamp
    mailed: bool
    link: str | None = Field(
        description="To pass on to the invited person, shown only now; null when it was mailed. Whoever has it can use it."
    )


class InvitationPreviewResponse(ResponseModel):
    account_name: str
    email: str
    name: str
    role: Role
    expires_at: Timestamp


class InvitationAcceptedResponse(ResponseModel):
    membership_id: str
    email: str = Field(description="Sign in with it and the new password.")


def invitation_sent_response(sent: InvitationResult) -> InvitationSentResponse:
    return InvitationSentResponse.of(sent.invitation, sent, mailed=sent.link is None)
