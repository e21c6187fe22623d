"""API keys, and the grants of a key."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, AuthorityMade, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, SearchPageQueryParameters, list_response
from adapters.http.core.schemas import DisplayName, PatchBody, RequestBodyModel, ResponseModel, Timestamp
from domain.grants.model import AppliesVia, Grant, Scope
from domain.grants.service import GrantService
from domain.keys.service import ApiKeyService


class ApiKeyCreateRequest(RequestBodyModel):
    name: DisplayName


class ApiKeyUpdateRequest(PatchBody):
    name: DisplayName | None = None
    enabled: bool | None = None


class ApiKeyResponse(ResponseModel):
    key_id: str
    name: str
    type: Literal["SECRET"] = "SECRET"
    prefix: str = Field(examples=["sk_live_3fQz"])
    enabled: bool
    last_used_at: Timestamp | None
    created_at: Timestamp


class ApiKeyCreatedResponse(ResponseModel):
    key_id: str
    name: str
    type: Literal["SECRET"] = "SECRET"
    prefix: str
    key: str = Field(description="The complete key. It is shown only in this response.")


class GrantedDeviceResponse(ResponseModel):
    device_id: str
    name: str


class GrantedProjectResponse(ResponseModel):
    project_id: str
    name: str


class GrantedGroupResponse(ResponseModel):
    group_id: str
    name: str


class ApiKeyGrantResponse(ResponseModel):
    grant_id: str
    applies_via: AppliesVia
    device: GrantedDeviceResponse | None
    project: GrantedProjectResponse | None
    group: GrantedGroupResponse | None
    commands: list[str]
    scope: Scope
    expires_at: Timestamp | None
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

    @bp.operation("GET /keys", AllowedCallers.SESSION, "List API keys", paged=True)
    async def list_keys(query: SearchPageQueryParameters) -> HttpHandlerResult[list[ApiKeyResponse]]:
        """Oldest first, without the secrets. `lastUsedAt` may lag by a few seconds."""
        found = query.found(await keys.list(current_session()), "name", "key_id", "prefix")
        return list_response(found, query, ApiKeyResponse.of, lambda key: key.key_id)

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
        made = await keys.create(current_session(), body.name)
        return ApiKeyCreatedResponse.of(made.key, key=made.secret)

    @bp.operation(
        "PATCH /keys/<key_id>",
        AllowedCallers.SESSION,
        "Rename, disable or enable a key",
        errors={403: "ROLE_REQUIRED"},
        authority=AuthorityMade("key_enabled", "DELETE /keys/{keyId}", when="a disabled key is enabled"),
    )
    async def update_key(key_id: str, body: ApiKeyUpdateRequest) -> None:
        """Requires the role Admin or Owner."""
        await keys.update(current_session(), key_id, name=body.name, enabled=body.enabled)

    @bp.operation("DELETE /keys/<key_id>", AllowedCallers.SESSION, "Delete a key", errors={403: "ROLE_REQUIRED"})
    async def delete_key(key_id: str) -> None:
        """Also deletes its grants and webhooks, at once. Requires the role Admin or Owner."""
        await keys.delete(current_session(), key_id)

    @bp.operation("GET /keys/<key_id>/grants", AllowedCallers.SESSION, "List a key's grants", paged=True)
    async def list_key_grants(key_id: str, query: PageQueryParameters) -> HttpHandlerResult[list[ApiKeyGrantResponse]]:
        """The grants of the key, on single devices and on whole projects."""
        found = await grants.list_of_key(current_session(), key_id)
        return list_response(found, query, lambda entry: ApiKeyGrantResponse.from_domain(*entry), lambda entry: entry[0].grant_id)

    return bp
