"""Request and response models of passkeys."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from adapters.http.api.authentication.second_factor_schemas import PasskeyResponseField
from adapters.http.core.schemas import DisplayName, RequestBodyModel, ResponseModel, Timestamp

PublicKeyOptions = Annotated[
    dict[str, Any], Field(json_schema_extra={"examples": [{"challenge": "c2hvdy1tZQ", "timeout": 300000}]})
]


class PasskeyOptionsRequest(RequestBodyModel):
    challenge_token: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="Of a sign-in that waits for its second factor; else passwordless.",
    )


class PasskeyLoginRequest(RequestBodyModel):
    passkey: PasskeyResponseField
    device_token: str | None = Field(default=None, max_length=1024, description="That of this client's last login.")


class PasskeyCreateRequest(RequestBodyModel):
    name: DisplayName
    passkey: PasskeyResponseField


class PasskeyOptionsResponse(ResponseModel):
    public_key: PublicKeyOptions = Field(
        description="For `navigator.credentials`, in the JSON of `PublicKeyCredential.parseRequestOptionsFromJSON`, or of "
        "`parseCreationOptionsFromJSON` for a new passkey. Its challenge is valid for five minutes and one response."
    )


class PasskeyResponse(ResponseModel):
    passkey_id: str
    name: str
    synced: bool = Field(description="Whether a password manager keeps it on several devices.")
    created_at: Timestamp
    last_used_at: Timestamp | None


class PasskeyCreatedResponse(ResponseModel):
    passkey_id: str
    recovery_codes: list[str] = Field(description="With your first second factor; shown only now. Else empty.")
