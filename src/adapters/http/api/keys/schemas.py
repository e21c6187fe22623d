"""Request and response models of API keys."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from adapters.http.core.schemas import DisplayName, PatchBody, RequestBodyModel, ResponseModel, Timestamp


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
