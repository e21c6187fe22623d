"""Grants on a group. Sessions only; requires the role Admin or Owner."""

from __future__ import annotations

from typing import Any

from adapters.http.api.grants.schemas import GrantCreatedResponse, GrantResponse, GrantUpdateRequest, GroupGrantCreateRequest
from adapters.http.core.caller_authentication import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.operation_handling import HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response
from domain.grants.service import GroupGrantService
from domain.kernel.ids import GrantId, GroupId

GRANT_ERRORS = {403: "ROLE_REQUIRED"}


def group_grants_blueprint(grants: GroupGrantService[Any]) -> ApiBlueprint:
    bp = ApiBlueprint("group_grants", "Groups", affects="Grants")

    @bp.operation(
        "GET /groups/<group_id>/grants", AllowedCallers.SESSION, "List a group's grants", errors=GRANT_ERRORS, paged=True
    )
    async def list_group_grants(group_id: GroupId, query: PageQueryParameters) -> HttpHandlerResult[list[GrantResponse]]:
        """Oldest first. Requires the role Admin or Owner."""
        found = await grants.list(current_session(), group_id)
        return list_response(found, query, GrantResponse.from_domain, lambda named: named.grant.grant_id)

    @bp.operation(
        "POST /groups/<group_id>/grants",
        AllowedCallers.SESSION,
        "Create a grant on a group",
        status=201,
        errors={**GRANT_ERRORS, 409: "GRANT_LIMIT REQUEST_PENDING"},
        idempotent=True,
    )
    async def create_group_grant(group_id: GroupId, body: GroupGrantCreateRequest) -> GrantCreatedResponse:
        """Covers every device while it is a member. A rate limit is for all members together. Requires the role Admin or
        Owner."""
        granted = await grants.create(current_session(), group_id, body.to_input())
        return GrantCreatedResponse(grant_id=granted.grant.grant_id)

    @bp.operation(
        "PATCH /groups/<group_id>/grants/<grant_id>",
        AllowedCallers.SESSION,
        "Change a grant on a group",
        errors={**GRANT_ERRORS, 409: "REQUEST_PENDING"},
    )
    async def update_group_grant(group_id: GroupId, grant_id: GrantId, body: GrantUpdateRequest) -> None:
        """Takes effect with the next call. Requires the role Admin or Owner."""
        await grants.update(current_session(), group_id, grant_id, body.to_changes())

    @bp.operation(
        "DELETE /groups/<group_id>/grants/<grant_id>", AllowedCallers.SESSION, "Delete a grant on a group", errors=GRANT_ERRORS
    )
    async def delete_group_grant(group_id: GroupId, grant_id: GrantId) -> None:
        """Takes effect with the next call. Requires the role Admin or Owner."""
        await grants.delete(current_session(), group_id, grant_id)

    return bp
