"""Request and response models of API keys."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from adapters.http.core.schemas import DisplayName, PatchBody, RequestBody, ResponseModel, Timestamp
from domain.kernel.clock import to_iso
from domain.keys.model import ApiKey
from domain.keys.service import CreatedApiKey


class ApiKeyCreateRequest(RequestBody):
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


def api_key_response(key: ApiKey) -> ApiKeyResponse:
    return ApiKeyResponse(
        key_id=key.key_id,
        name=key.name,
        prefix=key.prefix,
        enabled=key.enabled,
        last_used_at=None if key.last_used_ms is None else to_iso(key.last_used_ms),
        created_at=to_iso(key.created_ms),
    )


def api_key_created_response(made: CreatedApiKey) -> ApiKeyCreatedResponse:
    return ApiKeyCreatedResponse(key_id=made.key.key_id, name=made.key.name, prefix=made.key.prefix, key=made.secret)
