"""Request and response models of service sessions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from adapters.http.core.request_parsing import parse_timestamp
from adapters.http.core.schemas import DisplayName, RequestBodyModel, ResponseModel, Timestamp, TimestampText
from domain.kernel.caller import Role
from domain.team.service_sessions import RESOURCES, ServiceSessionTokenInput


class ServiceSessionRequest(RequestBodyModel):
    name: DisplayName
    role: Literal["Admin", "Member", "Viewer"] = Field(description="Below Owner, and not above your own.")
    operations: Annotated[list[Annotated[str, Field(max_length=40)]], Field(min_length=1, max_length=2 * len(RESOURCES))] = Field(
        description="`RESOURCE:read` or `RESOURCE:write`; `write` includes `read`.", examples=[["devices:write", "groups:write"]]
    )
    expires_at: TimestampText = Field(description="At most 366 days ahead.")

    def to_input(self) -> ServiceSessionTokenInput:
        expires_ms = parse_timestamp("expiresAt", self.expires_at)
        return ServiceSessionTokenInput(self.name, Role(self.role), tuple(self.operations), expires_ms)


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
