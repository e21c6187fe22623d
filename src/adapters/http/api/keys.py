"""API keys, and the grants of a key."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, AuthorityMade, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, SearchPageQueryParameters, list_response
from adapters.http.core.parsing import parse_timestamp
from adapters.http.core.schemas import (
    DisplayName,
    EndedAt,
    EndingResponse,
    PatchBody,
    RequestBodyModel,
    ResponseModel,
    Timestamp,
    TimestampText,
)
from domain.grants.model import AppliesVia, Grant, Scope
from domain.grants.service import GrantService
from domain.keys.model import DEFAULT_OVERLAP_S, MAX_NETWORKS, MAX_OVERLAP_S
from domain.keys.service import ApiKeyLimits, ApiKeyService

NetworkText = Annotated[str, Field(min_length=2, max_length=64)]
AllowedNetworks = Annotated[
    list[NetworkText],
    Field(
        max_length=MAX_NETWORKS,
        description="Addresses and CIDR networks that the key may be used from. Empty or `null`: from everywhere.",
        examples=[["192.168.1.0/24", "2001:db8::/32"]],
    ),
]
ExpiresAt = Annotated[
    TimestampText, Field(description="When the key ends. Omitted or `null`: never.", examples=["2031-01-31T04:00:00Z"])
]


class ApiKeyCreateRequest(RequestBodyModel):
    name: DisplayName
    expires_at: ExpiresAt | None = None
    allowed_networks: AllowedNetworks | None = None

    def to_limits(self) -> ApiKeyLimits:
        return {"expires_ms": _parse_end(self.expires_at), "allowed_networks": self.allowed_networks or ()}


class ApiKeyUpdateRequest(PatchBody):
    """Omitted fields keep their value; `null` removes a limit."""

    nullable = frozenset({"expires_at", "allowed_networks"})

    name: DisplayName | None = None
    enabled: bool | None = None
    expires_at: ExpiresAt | None = None
    allowed_networks: AllowedNetworks | None = None

    def to_changes(self) -> dict[str, Any]:
        """The changed fields by their names in `ApiKeyChanges`."""
        given = super().to_changes()
        if "expires_at" in given:
            given["expires_ms"] = _parse_end(given.pop("expires_at"))
        if "allowed_networks" in given:
            given["allowed_networks"] = given["allowed_networks"] or ()
        return given


class ApiKeyRotateRequest(RequestBodyModel):
    overlap_seconds: int = Field(
        default=DEFAULT_OVERLAP_S,
        ge=0,
        le=MAX_OVERLAP_S,
        description="How long the present secret works on; `0` ends it at once.",
    )


class ApiKeyResponse(EndingResponse):
    key_id: str
    name: str
    type: Literal["SECRET"] = "SECRET"
    prefix: str = Field(examples=["sk_live_3fQz"])
    enabled: bool
    expires_at: Timestamp | None = Field(description="When the key ends; `null`: never.")
    ended_at: EndedAt
    allowed_networks: list[str] = Field(description="Where it may be used from; empty: everywhere.")
    previous_prefix: str | None = Field(description="Of the secret before the last rotation, if that had an overlap.")
    previous_expires_at: Timestamp | None = Field(description="When that secret ends, or has ended.")
    last_used_at: Timestamp | None
    last_used_prefix: str | None = Field(description="Of the secret that was used last.")
    created_at: Timestamp


class ApiKeyChangedResponse(ApiKeyResponse):
    ok: bool = True


class ApiKeyCreatedResponse(ApiKeyResponse):
    key: str = Field(description="The complete key. It is shown only in this response.")


class ApiKeyRotatedResponse(ApiKeyCreatedResponse):
    previous_prefix: str | None = Field(description="Of the secret that it replaces; `null` if that has ended.")
    previous_expires_at: Timestamp | None = Field(description="When the secret that it replaces ends.")


class GrantedDeviceResponse(ResponseModel):
    device_id: str
    name: str


class GrantedProjectResponse(ResponseModel):
    project_id: str
    name: str


class GrantedGroupResponse(ResponseModel):
    group_id: str
    name: str


class ApiKeyGrantResponse(EndingResponse):
    grant_id: str
    applies_via: AppliesVia
    device: GrantedDeviceResponse | None
    project: GrantedProjectResponse | None
    group: GrantedGroupResponse | None
    commands: list[str]
    scope: Scope
    expires_at: Timestamp | None
    ended_at: EndedAt
    rate_limit_per_minute: int | None
    created_at: Timestamp

    @classmethod
    def from_domain(cls, grant: Grant, name: str) -> ApiKeyGrantResponse:
        """`name`: of the device, group or project that it is on."""
        device, group = grant.device_id, grant.group_id
        project = grant.project_id if group is None else None
        return cls.of(
            grant,
            device=None if device is None else GrantedDeviceResponse(device_id=device, name=name),
            project=None if project is None else GrantedProjectResponse(project_id=project, name=name),
            group=None if group is None else GrantedGroupResponse(group_id=group, name=name),
        )


def keys_blueprint(*, keys: ApiKeyService[Any], grants: GrantService[Any]) -> ApiBlueprint:
    bp = ApiBlueprint("keys", "API keys")

    @bp.operation("GET /keys", AllowedCallers.SESSION, "List API keys")
    async def list_keys(query: SearchPageQueryParameters) -> HttpHandlerResult[list[ApiKeyResponse]]:
        """Oldest first, without the secrets. `lastUsedAt` may lag by a few seconds."""
        found = await keys.list(current_session())
        names = ("name", "key_id", "prefix")
        return list_response(found, query, ApiKeyResponse.of, lambda key: (key.created_ms, key.key_id), names)

    @bp.operation("GET /keys/<key_id>", AllowedCallers.SESSION, "Get an API key")
    async def get_key(key_id: str) -> ApiKeyResponse:
        """Without the secret."""
        return ApiKeyResponse.of(await keys.get(current_session(), key_id))

    @bp.operation(
        "POST /keys",
        AllowedCallers.SESSION,
        "Create an API key",
        status=201,
        idempotent=True,
        errors={403: "ROLE_REQUIRED", 409: "KEY_LIMIT"},
        authority=AuthorityMade("key_created", "DELETE /keys/{keyId}"),
    )
    async def create_key(body: ApiKeyCreateRequest) -> ApiKeyCreatedResponse:
        """Shown only in this response. A key has no permissions without a grant. Requires the role Admin or Owner."""
        made = await keys.create(current_session(), body.name, **body.to_limits())
        return ApiKeyCreatedResponse.of(made.key, key=made.secret)

    @bp.operation(
        "PATCH /keys/<key_id>",
        AllowedCallers.SESSION,
        "Rename or limit a key, disable or enable it",
        errors={403: "ROLE_REQUIRED"},
        authority=AuthorityMade("key_enabled", "DELETE /keys/{keyId}", when="it may do more afterwards"),
    )
    async def update_key(key_id: str, body: ApiKeyUpdateRequest) -> ApiKeyChangedResponse:
        """A key that has ended answers 401 `KEY_EXPIRED`, and 403 `ADDRESS_NOT_ALLOWED` from other networks. What it has
        queued is checked again. Requires the role Admin or Owner."""
        await keys.update(current_session(), key_id, **body.to_changes())
        return ApiKeyChangedResponse.of(await keys.get(current_session(), key_id))

    @bp.operation(
        "POST /keys/<key_id>/rotate",
        AllowedCallers.SESSION,
        "Replace a key's secret",
        idempotent=True,
        errors={403: "ROLE_REQUIRED"},
        authority=AuthorityMade("key_rotated", "DELETE /keys/{keyId}"),
    )
    async def rotate_key(key_id: str, body: ApiKeyRotateRequest) -> ApiKeyRotatedResponse:
        """The new secret is shown only in this response. The key keeps its grants, limits and webhooks. The present secret works
        until the overlap ends; one that an earlier rotation has left ends at once. Requires the role Admin or Owner."""
        made = await keys.rotate(current_session(), key_id, body.overlap_seconds)
        return ApiKeyRotatedResponse.of(made.key, key=made.secret)

    @bp.operation("DELETE /keys/<key_id>", AllowedCallers.SESSION, "Delete a key", errors={403: "ROLE_REQUIRED"})
    async def delete_key(key_id: str) -> None:
        """Also deletes its grants and webhooks, at once. Requires the role Admin or Owner."""
        await keys.delete(current_session(), key_id)

    @bp.operation("GET /keys/<key_id>/grants", AllowedCallers.SESSION, "List a key's grants")
    async def list_key_grants(key_id: str, query: PageQueryParameters) -> HttpHandlerResult[list[ApiKeyGrantResponse]]:
        """The grants of the key, on single devices and on whole projects."""
        found = await grants.list_of_key(current_session(), key_id)
        return list_response(
            found,
            query,
            lambda entry: ApiKeyGrantResponse.from_domain(*entry),
            lambda entry: (entry[0].created_ms, entry[0].grant_id),
        )

    return bp


def _parse_end(text: str | None) -> int | None:
    return None if text is None else parse_timestamp("expiresAt", text)
