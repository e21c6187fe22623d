"""Grant routes: manage grants and explain access decisions. Sessions only; requires the role Admin or Owner."""

from __future__ import annotations

from typing import Any

from adapters.http.api.grants import schemas as schema
from adapters.http.core.caller_authentication import AllowedCallers, current_caller, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.operation_handling import HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response
from domain.grants.explanation import AccessExplainer
from domain.grants.service import GrantService
from domain.kernel.ids import DeviceId, GrantId

GRANT_ERRORS = {403: "ROLE_REQUIRED"}
GrantCreateResult = schema.GrantCreatedResponse | schema.GrantCreatedWithWarningsResponse
GrantUpdateResult = schema.GrantUpdatedResponse | schema.GrantUpdatedWithWarningsResponse


def grants_blueprint(grants: GrantService[Any], access: AccessExplainer[Any]) -> ApiBlueprint:
    bp = ApiBlueprint("grants", "Grants")

    @bp.operation(
        "GET /devices/<device_id>/grants", AllowedCallers.SESSION, "List a device's grants", errors=GRANT_ERRORS, paged=True
    )
    async def list_grants(device_id: DeviceId, query: PageQueryParameters) -> HttpHandlerResult[list[schema.GrantResponse]]:
        """Oldest first, including grants on the device's whole project. Requires the role Admin or Owner."""
        grants_on_device = await grants.list(current_session(), device_id)
        return list_response(grants_on_device, query, schema.GrantResponse.from_domain, lambda named: named.grant.grant_id)

    @bp.operation(
        "GET /devices/<device_id>/access",
        AllowedCallers.KEY,
        "Explain an access decision",
        errors={400: "UNKNOWN_COMMAND", 403: "ROLE_REQUIRED SESSION_REQUIRED"},
    )
    async def explain_access(
        device_id: DeviceId, query: schema.AccessExplanationQueryParameters
    ) -> schema.AccessExplanationResponse:
        """Returns the grant that allows the call, or the first check that fails and when it would pass. Does not count against a
        rate limit. An API key can ask for itself before it acts."""
        explanation = await access.explain(
            current_caller(), device_id, command=query.cmd, key_id=query.api_key_id, membership_id=query.membership_id
        )
        return schema.AccessExplanationResponse.from_domain(explanation)

    @bp.operation(
        "POST /devices/<device_id>/grants",
        AllowedCallers.SESSION,
        "Create a grant",
        status=201,
        errors={**GRANT_ERRORS, 409: "GRANT_LIMIT"},
        idempotent=True,
    )
    async def create_grant(device_id: DeviceId, body: schema.GrantCreateRequest) -> GrantCreateResult:
        """A grant may name a command that the device does not have; `details` then contains a warning. Requires the role Admin or
        Owner."""
        granted = await grants.create(current_session(), device_id, body.to_input())
        if granted.warnings:
            return schema.GrantCreatedWithWarningsResponse.of(granted.grant, details=granted.warnings)
        return schema.GrantCreatedResponse.of(granted.grant)

    @bp.operation("PATCH /devices/<device_id>/grants/<grant_id>", AllowedCallers.SESSION, "Change a grant", errors=GRANT_ERRORS)
    async def update_grant(device_id: DeviceId, grant_id: GrantId, body: schema.GrantUpdateRequest) -> GrantUpdateResult:
        """Takes effect with the next call. Requires the role Admin or Owner."""
        granted = await grants.update(current_session(), device_id, grant_id, body.to_changes())
        warnings = granted.warnings
        return schema.GrantUpdatedWithWarningsResponse.of(details=warnings) if warnings else schema.GrantUpdatedResponse()

    @bp.operation("DELETE /devices/<device_id>/grants/<grant_id>", AllowedCallers.SESSION, "Delete a grant", errors=GRANT_ERRORS)
    async def delete_grant(device_id: DeviceId, grant_id: GrantId) -> None:
        """Takes effect with the next call. Deleting a project-wide grant affects the whole project. Requires the role Admin or
        Owner."""
        await grants.delete(current_session(), device_id, grant_id)

    return bp
