"""Service sessions: credentials of programs that manage the account. People's sessions only."""

from __future__ import annotations

from adapters.http.api.service_sessions import schemas as schema
from adapters.http.core.caller_authentication import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.operation_handling import HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response
from domain.kernel.ids import SessionId
from domain.team.service_sessions import ServiceSessionTokenService


def service_sessions_blueprint(service_sessions: ServiceSessionTokenService) -> ApiBlueprint:
    bp = ApiBlueprint("service_sessions", "Service sessions")

    @bp.operation(
        "GET /service-sessions", AllowedCallers.SESSION, "List service sessions", errors={403: "ROLE_REQUIRED"}, paged=True
    )
    async def list_service_sessions(query: PageQueryParameters) -> HttpHandlerResult[list[schema.ServiceSessionResponse]]:
        """Those that can be used, oldest first, without their tokens. Requires the role Admin or Owner."""
        found = await service_sessions.list(current_session())
        return list_response(found, query, schema.ServiceSessionResponse.of, lambda each: each.session_id)

    @bp.operation(
        "POST /service-sessions",
        AllowedCallers.SESSION,
        "Create a service session",
        status=201,
        errors={403: "ROLE_REQUIRED STEP_UP_REQUIRED", 409: "SERVICE_SESSION_LIMIT"},
        idempotent=True,
    )
    async def create_service_session(body: schema.ServiceSessionRequest) -> schema.ServiceSessionCreatedResponse:
        """Send the token as `Authorization: Bearer lbs_…`. It acts as you, with this role, for these operations. Requires the
        role Admin or Owner, and a recent second factor of those who have one."""
        created = await service_sessions.create(current_session(), body.to_input())
        return schema.ServiceSessionCreatedResponse.of(created.session, created)

    @bp.operation(
        "DELETE /service-sessions/<session_id>", AllowedCallers.SESSION, "Revoke a service session", errors={403: "ROLE_REQUIRED"}
    )
    async def revoke_service_session(session_id: SessionId) -> None:
        """At once: also a request of it that has begun commits nothing more. Requires the role Admin or Owner."""
        await service_sessions.revoke(current_session(), session_id)

    return bp
