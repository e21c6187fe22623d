"""Approval routes: list requests for approval and decide them. A key may look at its own."""

from __future__ import annotations

from typing import Any

from adapters.http.api.approvals.schemas import ApprovalResponse, ApprovalsQueryParameters, ApproveResponse, DecisionRequest
from adapters.http.core.caller_authentication import AllowedCallers, current_caller, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.operation_handling import HttpHandlerResult
from adapters.http.core.paging import page_response
from domain.approvals.service import ApprovalService
from domain.kernel.ids import ApprovalId, DeviceId

DENY_ERRORS = {403: "ROLE_REQUIRED", 409: "ALREADY_DECIDED"}
APPROVE_ERRORS = {
    400: "UNKNOWN_COMMAND INVALID_PARAMS",
    403: "ROLE_REQUIRED OWN_REQUEST DEVICE_DISABLED GRANT_MISSING COMMAND_NOT_GRANTED SCOPE_TOO_NARROW GRANT_EXPIRED "
    "OUTSIDE_GRANT_WINDOW",
    409: "ALREADY_DECIDED TOO_MANY_QUEUED",
}


def approvals_blueprint(approvals: ApprovalService[Any]) -> ApiBlueprint:
    bp = ApiBlueprint("approvals", "Approvals")

    async def page(query: ApprovalsQueryParameters, device_id: DeviceId | None) -> HttpHandlerResult[list[ApprovalResponse]]:
        found = await approvals.list(
            current_session(), device_id=device_id, status=query.status, limit=query.limit + 1, before=query.before
        )
        return page_response(found, query.limit, ApprovalResponse.from_domain, lambda approval: approval.approval_id)

    @bp.operation("GET /approvals", AllowedCallers.SESSION, "List approvals", paged=True)
    async def list_approvals(query: ApprovalsQueryParameters) -> HttpHandlerResult[list[ApprovalResponse]]:
        """Newest first."""
        return await page(query, None)

    @bp.operation("GET /devices/<device_id>/approvals", AllowedCallers.SESSION, "List a device's approvals", paged=True)
    async def list_device_approvals(
        device_id: DeviceId, query: ApprovalsQueryParameters
    ) -> HttpHandlerResult[list[ApprovalResponse]]:
        """Newest first."""
        return await page(query, device_id)

    @bp.operation("GET /devices/<device_id>/approvals/<approval_id>", AllowedCallers.KEY, "Get an approval")
    async def get_approval(device_id: DeviceId, approval_id: ApprovalId) -> ApprovalResponse:
        """Owners and Admins see every approval; API keys and other members see the ones they requested."""
        found = await approvals.get(current_caller(), device_id, approval_id)
        return ApprovalResponse.from_domain(found)

    @bp.operation(
        "POST /devices/<device_id>/approvals/<approval_id>/approve",
        AllowedCallers.SESSION,
        "Approve a command",
        errors=APPROVE_ERRORS,
        idempotent=True,
    )
    async def approve_command(device_id: DeviceId, approval_id: ApprovalId, body: DecisionRequest) -> ApproveResponse:
        """Sends the command at once, provided the requester still has permission and the device is enabled; otherwise the request
        stays PENDING. Requires the role Admin or Owner; nobody can approve their own request. A request of an API key counts as
        that of the Admin who made the key or its grant."""
        execution_id = await approvals.approve(current_session(), device_id, approval_id, note=body.note)
        return ApproveResponse(execution_id=execution_id)

    @bp.operation(
        "POST /devices/<device_id>/approvals/<approval_id>/deny",
        AllowedCallers.SESSION,
        "Deny a command",
        errors=DENY_ERRORS,
        idempotent=True,
    )
    async def deny_command(device_id: DeviceId, approval_id: ApprovalId, body: DecisionRequest) -> None:
        """The command is never sent. Requires the role Admin or Owner."""
        await approvals.deny(current_session(), device_id, approval_id, note=body.note)

    return bp
