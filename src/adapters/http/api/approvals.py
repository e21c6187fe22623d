"""Requests for approval: list, decide and withdraw them. A key may look at its own, and withdraw them.

A link of a mail or message leads to one request and decides it without a session. All its calls are POST, and only a decision
changes something: what opens links by itself, such as a mail scanner, changes nothing.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from adapters.http.api.second_factor import PasskeyOptionsResponse, PasskeyResponseField
from adapters.http.core.callers import AllowedCallers, client_info, current_caller, current_session
from adapters.http.core.operation import ApiBlueprint, HttpHandlerResult
from adapters.http.core.paging import CREATED, PageLimit, TimedPageQueryParameters, by_creation, page_response
from adapters.http.core.schemas import OkResponse, Remark, RequestBodyModel, ResponseModel, Timestamp
from domain.approvals.links import ApprovalLinkDetails, ApprovalLinkService
from domain.approvals.model import Approval, ApprovalStatus
from domain.approvals.service import LIST_LIMIT, ApprovalService
from domain.kernel.ids import ApprovalId, DeviceId
from domain.sign_in.second_factor import PresentedSecondFactor


class RequesterResponse(ResponseModel):
    """Who asked for the command. Names may be the same; ids are not."""

    id: str = Field(description="Of the API key (`key_…`) or the user (`usr_…`).", examples=["key_0q1w2e3r4t5y6u7i8o9p"])
    name: str


class ApprovalResponse(ResponseModel):
    approval_id: str
    device_id: str
    cmd: str
    channel: int
    params: Any
    status: ApprovalStatus
    created_at: Timestamp
    expires_at: Timestamp
    requested_by: RequesterResponse
    decided_by: str | None
    decided_at: Timestamp | None
    execution_id: str | None
    reason: str | None = Field(description="Why the requester wants it.")
    note: str | None = Field(description="What the decider says about it, or who withdraws it.")

    @classmethod
    def from_domain(cls, approval: Approval) -> Self:
        requester = approval.requested_by
        shown = RequesterResponse(id=requester.actor_id, name=requester.name or requester.label)
        return cls.of(approval, requested_by=shown)


class DecisionRequest(RequestBodyModel):
    note: Remark | None = Field(default=None, description="A line for the requester, who sees it in the approval.")


class ApprovalDecidedResponse(ApprovalResponse):
    ok: bool = True


class ApprovalsQueryParameters(TimedPageQueryParameters):
    status: ApprovalStatus | None = None
    limit: PageLimit = LIST_LIMIT


DENY_ERRORS = {403: "ROLE_REQUIRED", 409: "ALREADY_DECIDED"}
WITHDRAW_ERRORS = {403: "NOT_OWN_REQUEST", 409: "ALREADY_DECIDED"}
APPROVE_ERRORS = {
    400: "UNKNOWN_CHANNEL UNKNOWN_COMMAND INVALID_PARAMS",
    403: "ROLE_REQUIRED STEP_UP_REQUIRED OWN_REQUEST DEVICE_DISABLED GRANT_MISSING COMMAND_NOT_GRANTED CHANNEL_NOT_GRANTED "
    "SCOPE_TOO_NARROW GRANT_EXPIRED OUTSIDE_GRANT_WINDOW",
    409: "ALREADY_DECIDED TOO_MANY_QUEUED DEVICE_PENDING",
}


def approvals_blueprint(approvals: ApprovalService[Any]) -> ApiBlueprint:
    bp = ApiBlueprint("approvals", "Approvals")

    async def page(query: ApprovalsQueryParameters, device_id: DeviceId | None) -> HttpHandlerResult[list[ApprovalResponse]]:
        found = await approvals.list(
            current_session(),
            device_id=device_id,
            status=query.status,
            limit=query.limit + 1,
            before=query.position(*CREATED),
            created=query.span,
        )
        return page_response(found, query, ApprovalResponse.from_domain, by_creation)

    @bp.operation("GET /approvals", AllowedCallers.SESSION, "List approvals")
    async def list_approvals(query: ApprovalsQueryParameters) -> HttpHandlerResult[list[ApprovalResponse]]:
        """Newest first."""
        return await page(query, None)

    @bp.operation("GET /devices/<device_id>/approvals", AllowedCallers.SESSION, "List a device's approvals")
    async def list_device_approvals(
        device_id: DeviceId, query: ApprovalsQueryParameters
    ) -> HttpHandlerResult[list[ApprovalResponse]]:
        """Newest first."""
        return await page(query, device_id)

    @bp.operation("GET /devices/<device_id>/approvals/<approval_id>", AllowedCallers.KEY, "Get an approval")
    async def get_approval(device_id: DeviceId, approval_id: ApprovalId) -> ApprovalResponse:
        """Members of every role see every approval; an API key sees the ones it requested."""
        found = await approvals.get(current_caller(), device_id, approval_id)
        return ApprovalResponse.from_domain(found)

    @bp.operation(
        "POST /devices/<device_id>/approvals/<approval_id>/approve",
        AllowedCallers.SESSION,
        "Approve a command",
        errors=APPROVE_ERRORS,
        idempotent=True,
    )
    async def approve_command(device_id: DeviceId, approval_id: ApprovalId, body: DecisionRequest) -> ApprovalDecidedResponse:
        """Sends the command at once, provided the requester still has permission and the device is enabled; otherwise the request
        stays PENDING. Requires the role Admin or Owner; nobody can approve their own request. A request of an API key counts as
        that of the Admin who made the key or its grant."""
        await approvals.approve(current_session(), device_id, approval_id, note=body.note)
        return ApprovalDecidedResponse.from_domain(await approvals.get(current_session(), device_id, approval_id))

    @bp.operation(
        "POST /devices/<device_id>/approvals/<approval_id>/deny",
        AllowedCallers.SESSION,
        "Deny a command",
        errors=DENY_ERRORS,
        idempotent=True,
    )
    async def deny_command(device_id: DeviceId, approval_id: ApprovalId, body: DecisionRequest) -> ApprovalDecidedResponse:
        """The command is never sent. Requires the role Admin or Owner."""
        await approvals.deny(current_session(), device_id, approval_id, note=body.note)
        return ApprovalDecidedResponse.from_domain(await approvals.get(current_session(), device_id, approval_id))

    @bp.operation(
        "POST /devices/<device_id>/approvals/<approval_id>/withdraw",
        AllowedCallers.KEY,
        "Withdraw a request",
        errors=WITHDRAW_ERRORS,
        idempotent=True,
    )
    async def withdraw_command(device_id: DeviceId, approval_id: ApprovalId, body: DecisionRequest) -> ApprovalDecidedResponse:
        """By the API key or the member who asked, of any role; the command is never sent. What was approved already is called off
        with `POST /devices/{deviceId}/executions/{executionId}/cancel` while it waits for its device."""
        await approvals.withdraw(current_caller(), device_id, approval_id, note=body.note)
        return ApprovalDecidedResponse.from_domain(await approvals.get(current_caller(), device_id, approval_id))

    return bp


class LinkTokenRequest(RequestBodyModel):
    token: str = Field(min_length=1, max_length=1024, description="The end of the link.")


class LinkDecisionRequest(LinkTokenRequest):
    note: Remark | None = Field(default=None, description="A line for the requester, who sees it in the approval.")
    totp: str | None = Field(default=None, max_length=16)
    recovery_code: str | None = Field(default=None, max_length=32)
    passkey: PasskeyResponseField | None = None

    @model_validator(mode="after")
    def _at_most_one_factor(self) -> LinkDecisionRequest:
        if sum(one is not None for one in (self.totp, self.recovery_code, self.passkey)) > 1:
            raise ValueError("send only one of totp, recoveryCode and passkey")
        return self

    def to_factor(self) -> PresentedSecondFactor | None:
        shown = PresentedSecondFactor(self.totp, self.recovery_code, self.passkey)
        return None if shown == PresentedSecondFactor() else shown


class ApprovalByLinkResponse(ResponseModel):
    approval: ApprovalResponse
    device_name: str
    channel_name: str | None = Field(description="Of the channel that the command is for; null for a device of one relay.")
    decider: str = Field(description="The member whom the link was sent to: they decide.")
    link_expires_at: Timestamp
    second_factors: list[Literal["totp", "passkey", "recoveryCode"]] = Field(
        description="One of them must be shown; empty for a member without a second factor."
    )

    @classmethod
    def from_domain(cls, linked: ApprovalLinkDetails) -> ApprovalByLinkResponse:
        return cls.of(
            approval=ApprovalResponse.from_domain(linked.approval),
            device_name=linked.device.name,
            channel_name=linked.channel_name,
            decider=linked.user.name,
            link_expires_at=linked.expires_ms,
            second_factors=linked.methods,
        )


class LinkApprovedResponse(OkResponse):
    execution_id: str


LINK_DECISION = (
    "As the member whom the link was sent to, with the role that they have now. Who has a second factor must show it. A link "
    "decides once."
)


LINK_ERRORS = {400: "LINK_INVALID", 403: "ROLE_REQUIRED", 404: "NOT_FOUND"}
DECIDE_ERRORS = APPROVE_ERRORS | {
    400: f"LINK_INVALID PASSKEY_REFUSED {APPROVE_ERRORS[400]}",
    403: f"SECOND_FACTOR_REQUIRED SECOND_FACTOR_INVALID TOTP_LOCKED {APPROVE_ERRORS[403]}",
    404: "NOT_FOUND",
    429: "LOGIN_THROTTLED",
}


def approval_links_blueprint(links: ApprovalLinkService[Any]) -> ApiBlueprint:
    bp = ApiBlueprint("approval_links", "Approvals")

    @bp.operation(
        "POST /approval-links/preview", AllowedCallers.ANYONE, "Look at the request behind an approval link", errors=LINK_ERRORS
    )
    async def preview_linked_approval(body: LinkTokenRequest) -> ApprovalByLinkResponse:
        """It changes nothing. The link is in the notification of one member, and valid for an hour."""
        return ApprovalByLinkResponse.from_domain(await links.preview(body.token))

    @bp.operation(
        "POST /approval-links/passkey-options",
        AllowedCallers.ANYONE,
        "Get the question to confirm a decision with a passkey",
        errors=LINK_ERRORS,
    )
    async def create_link_passkey_options(body: LinkTokenRequest) -> PasskeyOptionsResponse:
        """The response belongs to `POST /approval-links/approve` or `…/deny` with the same link."""
        return PasskeyOptionsResponse(public_key=await links.passkey_options(body.token))

    @bp.operation(
        "POST /approval-links/approve",
        AllowedCallers.ANYONE,
        "Approve a request by its link",
        description=LINK_DECISION,
        errors=DECIDE_ERRORS,
    )
    async def approve_linked_approval(body: LinkDecisionRequest) -> LinkApprovedResponse:
        return LinkApprovedResponse(execution_id=await decide(body, approve=True) or "")

    @bp.operation(
        "POST /approval-links/deny",
        AllowedCallers.ANYONE,
        "Deny a request by its link",
        description=LINK_DECISION,
        errors=DECIDE_ERRORS,
    )
    async def deny_linked_approval(body: LinkDecisionRequest) -> None:
        await decide(body, approve=False)

    async def decide(body: LinkDecisionRequest, *, approve: bool) -> str | None:
        address = client_info().address
        return await links.decide(body.token, approve=approve, note=body.note, factor=body.to_factor(), address=address)

    return bp
