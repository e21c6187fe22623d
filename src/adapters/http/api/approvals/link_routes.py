"""Approval links: look at the request behind a link, and decide it without a session. All are POST, and only a decision changes
something: what opens links by itself, such as a mail scanner, changes nothing.
"""

from __future__ import annotations

from typing import Any

from adapters.http.api.approvals import link_schemas as schema
from adapters.http.api.approvals.routes import APPROVE_ERRORS
from adapters.http.api.authentication.passkey_schemas import PasskeyOptionsResponse
from adapters.http.core.caller_authentication import AllowedCallers, client_info
from adapters.http.core.operation import ApiBlueprint
from domain.approvals.links import ApprovalLinkService

LINK_ERRORS = {400: "LINK_INVALID", 403: "ROLE_REQUIRED", 404: "NOT_FOUND"}
DECIDE_ERRORS = APPROVE_ERRORS | {
    400: f"LINK_INVALID PASSKEY_REFUSED {APPROVE_ERRORS[400]}",
    403: f"SECOND_FACTOR_REQUIRED SECOND_FACTOR_INVALID {APPROVE_ERRORS[403]}",
    404: "NOT_FOUND",
    429: "LOGIN_THROTTLED",
}


def approval_links_blueprint(links: ApprovalLinkService[Any]) -> ApiBlueprint:
    bp = ApiBlueprint("approval_links", "Approvals")

    @bp.operation(
        "POST /approval-links/preview", AllowedCallers.ANYONE, "Look at the request behind an approval link", errors=LINK_ERRORS
    )
    async def preview_linked_approval(body: schema.LinkTokenRequest) -> schema.ApprovalByLinkResponse:
        """It changes nothing. The link is in the notification of one member, and valid for an hour."""
        return schema.ApprovalByLinkResponse.from_domain(await links.preview(body.token))

    @bp.operation(
        "POST /approval-links/passkey-options",
        AllowedCallers.ANYONE,
        "Get the question to confirm a decision with a passkey",
        errors=LINK_ERRORS,
    )
    async def create_link_passkey_options(body: schema.LinkTokenRequest) -> PasskeyOptionsResponse:
        """The response belongs to `POST /approval-links/decide` with the same link."""
        return PasskeyOptionsResponse(public_key=await links.passkey_options(body.token))

    @bp.operation(
        "POST /approval-links/decide",
        AllowedCallers.ANYONE,
        "Decide a request by its link",
        description="As the member whom the link was sent to, with the role that they have now. Who has a second factor must "
        "show it. A link decides once.",
        errors=DECIDE_ERRORS,
    )
    async def approve_or_deny_linked(body: schema.LinkDecisionRequest) -> schema.LinkDecisionResponse:
        execution_id = await links.decide(
            body.token, approve=body.decision == "APPROVE", note=body.note, factor=body.to_factor(), address=client_info().address
        )
        return schema.LinkDecisionResponse(execution_id=execution_id)

    return bp
