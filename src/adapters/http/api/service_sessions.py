"""Service sessions: credentials of programs that manage the account. For people's sessions only."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, AuthorityMade, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response
from adapters.http.core.parsing import parse_timestamp
from adapters.http.core.schemas import DisplayName, RequestBodyModel, ResponseModel, Timestamp, TimestampText
from domain.kernel.caller import Role
from domain.kernel.ids import SessionId
from domain.team.service_sessions import RESOURCES, ServiceSessionTokenService


class ServiceSessionRequest(RequestBodyModel):
    name: DisplayName
    role: Literal["Admin", "Member", "Viewer"] = Field(description="Below Owner, and not above your own.")
    operations: Annotated[list[Annotated[str, Field(max_length=40)]], Field(min_length=1, max_length=2 * len(RESOURCES))] = Field(
        description="`RESOURCE:read` or `RESOURCE:write`; `write` includes `read`.", examples=[["devices:write", "groups:write"]]
    )
    expires_at: TimestampText = Field(description="At most 366 days ahead.")


class ServiceSessionResponse(ResponseModel):
    session_id: str
    name: str
    prefix: str
    role: Role
    operations: list[str]
    membership_id: str = Field(description="The member who made it, and as whom it acts.")
    created_at: Timestamp
    expires_at: Timestamp
    last_used_at: Timestamp | None = Field(description="Written every few seconds; null until its first use.")


class ServiceSessionCreatedResponse(ServiceSessionResponse):
    token: str = Field(description="Shown only in this response.", json_schema_extra={"format": "password"})


def service_sessions_blueprint(service_sessions: ServiceSessionTokenService) -> ApiBlueprint:
    bp = ApiBlueprint("service_sessions", "Service sessions")

    @bp.operation("GET /service-sessions", AllowedCallers.SESSION, "List service sessions", errors={403: "ROLE_REQUIRED"})
    async def list_service_sessions(query: PageQueryParameters) -> HttpHandlerResult[list[ServiceSessionResponse]]:
        """Those that can be used, oldest first, without their tokens. Requires the role Admin or Owner."""
        found = await service_sessions.list(current_session())
        return list_response(found, query, ServiceSessionResponse.of, lambda each: (each.created_ms, each.session_id))

    @bp.operation(
        "GET /service-sessions/<session_id>", AllowedCallers.SESSION, "Get a service session", errors={403: "ROLE_REQUIRED"}
    )
    async def get_service_session(session_id: SessionId) -> ServiceSessionResponse:
        """Without its token. Requires the role Admin or Owner."""
        return ServiceSessionResponse.of(await service_sessions.get(current_session(), session_id))

    @bp.operation(
        "POST /service-sessions",
        AllowedCallers.SESSION,
        "Create a service session",
        status=201,
        errors={403: "ROLE_REQUIRED STEP_UP_REQUIRED", 409: "SERVICE_SESSION_LIMIT"},
        idempotent=True,
        authority=AuthorityMade("service_session_created", "DELETE /service-sessions/{sessionId}"),
    )
    async def create_service_session(body: ServiceSessionRequest) -> ServiceSessionCreatedResponse:
        """Send the token as `Authorization: Bearer lbs_…`. It acts as you, with this role, for these operations. Requires the
        role Admin or Owner, and a recent second factor of those who have one."""
        expires_ms = parse_timestamp("expiresAt", body.expires_at)
        session, token = await service_sessions.create(
            current_session(), name=body.name, role=Role(body.role), operations=body.operations, expires_ms=expires_ms
        )
        return ServiceSessionCreatedResponse.of(session, token=token)

    @bp.operation(
        "DELETE /service-sessions/<session_id>", AllowedCallers.SESSION, "Revoke a service session", errors={403: "ROLE_REQUIRED"}
    )
    async def revoke_service_session(session_id: SessionId) -> None:
        """At once: also a request of it that has begun commits nothing more. Requires the role Admin or Owner."""
        await service_sessions.revoke(current_session(), session_id)

    return bp
