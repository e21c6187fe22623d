"""API key routes, and the grants of a key.

Request and response models of API keys.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from adapters.http.api.grants import ApiKeyGrantResponse, api_key_grant_response
from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response
from adapters.http.core.schemas import DisplayName, PatchBody, RequestBodyModel, ResponseModel, Timestamp
from domain.grants.ports import GrantsTx
from domain.kernel.unit_of_work import UnitOfWork
from domain.keys.model import ApiKey
from domain.keys.service import ApiKeyService, get_api_key


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


def keys_blueprint(*, keys: ApiKeyService[Any], uow: UnitOfWork[GrantsTx]) -> ApiBlueprint:
    bp = ApiBlueprint("keys", "API keys")

    @bp.operation("GET /keys", AllowedCallers.SESSION, "List API keys", paged=True)
    async def list_keys(query: PageQueryParameters) -> HttpHandlerResult[list[ApiKeyResponse]]:
        """Oldest first, without the secrets. `lastUsedAt` may lag by a few seconds."""
        return list_response(await keys.list(current_session()), query, ApiKeyResponse.of, lambda key: key.key_id)

    @bp.operation(
        "POST /keys",
        AllowedCallers.SESSION,
        "Create an API key",
        status=201,
        idempotent=True,
        errors={403: "ROLE_REQUIRED", 409: "KEY_LIMIT"},
    )
    async def create_key(body: ApiKeyCreateRequest) -> ApiKeyCreatedResponse:
        """Shown only in this response. A key has no permissions without a grant. Requires the role Admin or Owner."""
        made = await keys.create(current_session(), body.name)
        return ApiKeyCreatedResponse.of(made.key, key=made.secret)

    @bp.operation(
        "PATCH /keys/<key_id>", AllowedCallers.SESSION, "Rename, disable or enable a key", errors={403: "ROLE_REQUIRED"}
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
        caller = current_session()
        async with uow.read() as tx:
            key = await get_api_key(tx, caller, key_id)
            found = await _load_key_grants(tx, key)
        return list_response(found, query, lambda grant: grant, lambda grant: grant.grant_id)

    return bp


async def _load_key_grants(tx: GrantsTx, key: ApiKey) -> list[ApiKeyGrantResponse]:
    grants = await tx.grants.list_by_key(key.account_id, key.key_id)
    devices = {device.device_id: device.name for device in await tx.devices.list(key.account_id)} if grants else {}
    projects = (
        {one.project_id: one.name for one, _ in await tx.projects.list_with_device_counts(key.account_id)} if grants else {}
    )
    groups = {group.group_id: group.name for group in await tx.groups.list(key.account_id)} if grants else {}
    return [api_key_grant_response(grant, devices, projects, groups) for grant in grants]
