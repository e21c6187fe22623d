"""Invitations: Admins invite; the invited person looks at the invitation and accepts it."""

from __future__ import annotations

from pydantic import Field

from adapters.http.core.callers import AllowedCallers, client_info, current_session, request_language
from adapters.http.core.operation import ApiBlueprint, AuthorityMade, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response
from adapters.http.core.schemas import DisplayName, EndedAt, EndingResponse, EnumValue, RequestBodyModel, ResponseModel, Timestamp
from domain.accounts.model import Invitation
from domain.kernel.caller import Role
from domain.team.invitations import InvitationAcceptanceService, InvitationResult, InvitationService, InvitationStatus


class InvitationCreateRequest(RequestBodyModel):
    email: str = Field(max_length=254, examples=["grace@example.com"])
    name: DisplayName
    role: EnumValue[Role]


class InvitationPreviewRequest(RequestBodyModel):
    token: str = Field(min_length=1, max_length=128, description="The end of the link.")


class InvitationAcceptRequest(InvitationPreviewRequest):
    password: str = Field(min_length=8, max_length=256, description="The password of the new member.")
    name: DisplayName | None = Field(default=None, description="Instead of the name in the invitation.")


class InvitationResponse(EndingResponse):
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
    ended_at: EndedAt

    @classmethod
    def with_status(cls, invitation: Invitation, status: InvitationStatus) -> InvitationResponse:
        voided = {} if invitation.voided_ms is None else {"ended_at": invitation.voided_ms}
        return cls.of(invitation, status=status, **voided)


class InvitationSentResponse(InvitationResponse):
    mailed: bool
    link: str | None = Field(
        description="To pass on to the invited person, shown only now; null when it was mailed. Whoever has it can use it."
    )

    @classmethod
    def from_domain(cls, sent: InvitationResult) -> InvitationSentResponse:
        return cls.of(sent.invitation, sent, mailed=sent.link is None, status=InvitationStatus.PENDING)


class InvitationPreviewResponse(ResponseModel):
    account_name: str
    email: str
    name: str
    role: Role
    expires_at: Timestamp


class InvitationAcceptedResponse(ResponseModel):
    membership_id: str
    email: str = Field(description="Sign in with it and the new password.")


def invitations_blueprint(*, invitations: InvitationService, acceptance: InvitationAcceptanceService) -> ApiBlueprint:
    bp = ApiBlueprint("invitations", "Team")

    @bp.operation("GET /invitations", AllowedCallers.SESSION, "List invitations", errors={403: "ROLE_REQUIRED"})
    async def list_invitations(query: PageQueryParameters) -> HttpHandlerResult[list[InvitationResponse]]:
        """Those that were not used, oldest first; expired ones for a month. Requires the role Admin or Owner."""
        found = await invitations.list_invitations(current_session())
        return list_response(
            found,
            query,
            lambda each: InvitationResponse.with_status(*each),
            lambda each: (each[0].created_ms, each[0].invitation_id),
        )

    @bp.operation("GET /invitations/<invitation_id>", AllowedCallers.SESSION, "Get an invitation", errors={403: "ROLE_REQUIRED"})
    async def get_invitation(invitation_id: str) -> InvitationResponse:
        """Until it is used, and for a month after it has expired. Requires the role Admin or Owner."""
        invitation, status = await invitations.get(current_session(), invitation_id)
        return InvitationResponse.with_status(invitation, status)

    @bp.operation(
        "POST /invitations",
        AllowedCallers.SESSION,
        "Invite a person",
        status=201,
        idempotent=True,
        description="The invited person gets a link by mail, and sets a password that you never know. Without a mail server the "
        "response has the link for you to pass on. It is valid for 7 days and can be used once. Requires the role Admin or "
        "Owner; only an Owner can invite an Owner.",
        errors={403: "ROLE_REQUIRED", 409: "EMAIL_TAKEN INVITATION_EXISTS MEMBER_LIMIT", 429: "LOGIN_THROTTLED"},
        authority=AuthorityMade("member_invited", "DELETE /invitations/{invitationId}"),
    )
    async def create_invitation(body: InvitationCreateRequest) -> InvitationSentResponse:
        sent = await invitations.invite(
            current_session(), email=body.email, name=body.name, role=body.role, language=request_language()
        )
        return InvitationSentResponse.from_domain(sent)

    @bp.operation(
        "POST /invitations/<invitation_id>/resend",
        AllowedCallers.SESSION,
        "Send an invitation again",
        description="With a new link, valid for 7 days; the link before it no longer works. From now on the invitation depends "
        "on your role.",
        idempotent=True,
        errors={403: "ROLE_REQUIRED", 409: "EMAIL_TAKEN", 429: "LOGIN_THROTTLED"},
        authority=AuthorityMade("member_invited", "DELETE /invitations/{invitationId}"),
    )
    async def resend_invitation(invitation_id: str) -> InvitationSentResponse:
        sent = await invitations.resend(current_session(), invitation_id, language=request_language())
        return InvitationSentResponse.from_domain(sent)

    @bp.operation(
        "DELETE /invitations/<invitation_id>", AllowedCallers.SESSION, "Revoke an invitation", errors={403: "ROLE_REQUIRED"}
    )
    async def delete_invitation(invitation_id: str) -> None:
        """Its link no longer works. Requires the role Admin or Owner; only an Owner revokes that of an Owner."""
        await invitations.revoke(current_session(), invitation_id)

    @bp.operation(
        "POST /invitations/preview",
        AllowedCallers.ANYONE,
        "Look at an invitation",
        errors={400: "LINK_INVALID", 409: "INVITATION_VOID"},
    )
    async def preview_invitation(body: InvitationPreviewRequest) -> InvitationPreviewResponse:
        """What the link is for. It changes nothing."""
        invitation, account_name = await acceptance.preview(body.token)
        return InvitationPreviewResponse.of(invitation, account_name=account_name)

    @bp.operation(
        "POST /invitations/accept",
        AllowedCallers.ANYONE,
        "Accept an invitation",
        status=201,
        errors={400: "LINK_INVALID PASSWORD_WEAK", 409: "EMAIL_TAKEN MEMBER_EXISTS INVITATION_VOID MEMBER_LIMIT"},
    )
    async def accept_invitation(body: InvitationAcceptRequest) -> InvitationAcceptedResponse:
        """Makes you a member, with a password of your own. A link can be used once."""
        added = await acceptance.accept(body.token, password=body.password, name=body.name, client=client_info())
        return InvitationAcceptedResponse(membership_id=added.membership.membership_id, email=added.user.email)

    return bp
