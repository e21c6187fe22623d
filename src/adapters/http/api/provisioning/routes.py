"""Provisioning codes for Admins, the list of claims that wait, and the claim itself, which a device without credentials makes."""

from __future__ import annotations

from adapters.http.api.provisioning import schemas as schema
from adapters.http.core.caller_authentication import AllowedCallers, client_address, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.operation_handling import HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response, page_response
from domain.kernel.ids import ClaimId, ProvisioningCodeId
from domain.provisioning.codes import ProvisioningCodeAndClaimAdminService
from domain.provisioning.model import POLL_AFTER_S, ClaimStatus
from domain.provisioning.redemption import ProvisioningClaimInput, ProvisioningCodeRedemptionService

DECISION_ERRORS = {403: "ROLE_REQUIRED", 409: "ALREADY_CLAIMED"}


def provisioning_blueprint(
    codes: ProvisioningCodeAndClaimAdminService, claims: ProvisioningCodeRedemptionService
) -> ApiBlueprint:
    bp = ApiBlueprint("provisioning", "Provisioning")

    @bp.operation("GET /provisioning-codes", AllowedCallers.SESSION, "List provisioning codes", paged=True)
    async def list_provisioning_codes(query: PageQueryParameters) -> HttpHandlerResult[list[schema.ProvisioningCodeResponse]]:
        """Oldest first, without the codes themselves."""
        found = await codes.list(current_session())
        return list_response(found, query, schema.ProvisioningCodeResponse.of, lambda code: code.code_id)

    @bp.operation(
        "POST /provisioning-codes",
        AllowedCallers.SESSION,
        "Create a provisioning code",
        status=201,
        errors={403: "ROLE_REQUIRED", 404: "NOT_FOUND", 409: "PROVISIONING_CODE_LIMIT"},
        idempotent=True,
    )
    async def create_provisioning_code(body: schema.ProvisioningCodeRequest) -> schema.ProvisioningCodeCreatedResponse:
        """Devices with this code in their firmware trade it for credentials of their own. It is void while its maker is no Admin
        or Owner. Requires the role Admin or Owner."""
        created = await codes.create(current_session(), body.to_input())
        return schema.ProvisioningCodeCreatedResponse.of(created.code, code=created.secret)

    @bp.operation(
        "DELETE /provisioning-codes/<code_id>",
        AllowedCallers.SESSION,
        "Revoke a provisioning code",
        errors={403: "ROLE_REQUIRED"},
    )
    async def revoke_provisioning_code(code_id: ProvisioningCodeId) -> None:
        """Also removes the claims that wait. Devices that have their credentials keep them. Requires the role Admin or Owner."""
        await codes.revoke(current_session(), code_id)

    @bp.operation("GET /provisioning-claims", AllowedCallers.SESSION, "List claims", paged=True)
    async def list_provisioning_claims(
        query: schema.DeviceClaimsQueryParameters,
    ) -> HttpHandlerResult[list[schema.ClaimResponse]]:
        """Newest first."""
        found = await codes.list_claims(current_session(), status=query.status, before=query.before, limit=query.limit + 1)
        return page_response(found, query.limit, schema.ClaimResponse.of, lambda claim: claim.claim_id)

    @bp.operation(
        "POST /provisioning-claims/<claim_id>/approve", AllowedCallers.SESSION, "Approve a claim", errors=DECISION_ERRORS
    )
    async def approve_claim(claim_id: ClaimId) -> schema.ClaimResponse:
        """The device gets its credentials when it asks the next time. Requires the role Admin or Owner."""
        decided = await codes.decide(current_session(), claim_id, approve=True)
        return schema.ClaimResponse.of(decided)

    @bp.operation("POST /provisioning-claims/<claim_id>/deny", AllowedCallers.SESSION, "Deny a claim", errors=DECISION_ERRORS)
    async def deny_claim(claim_id: ClaimId) -> schema.ClaimResponse:
        """This hardware id is refused from now on; it can be approved later. Requires the role Admin or Owner."""
        decided = await codes.decide(current_session(), claim_id, approve=False)
        return schema.ClaimResponse.of(decided)

    @bp.operation(
        "POST /provisioning/claim",
        AllowedCallers.ANYONE,
        "Claim credentials with a provisioning code",
        returns={200: schema.DeviceClaimedResponse, 202: schema.DeviceClaimWaitsResponse},
        errors={
            401: "PROVISIONING_CODE_INVALID",
            403: "CLAIM_DENIED",
            409: "ALREADY_CLAIMED PROVISIONING_CODE_USED_UP TOO_MANY_DEVICES",
            429: "LOGIN_THROTTLED",
        },
    )
    async def claim_device(body: schema.DeviceClaimRequest) -> schema.DeviceClaimedResponse | schema.DeviceClaimWaitsResponse:
        """For a device at its first start; needs no other authentication. 202 while an Admin has not decided. The answer with the
        credentials comes once for each hardware id: store it before anything else."""
        issued = await claims.claim(ProvisioningClaimInput(body.code, body.hardware_id, body.name, client_address()))
        if issued is None:
            return schema.DeviceClaimWaitsResponse(status=ClaimStatus.WAITING, retry_after=POLL_AFTER_S)
        return schema.DeviceClaimedResponse.from_domain(issued)

    return bp
