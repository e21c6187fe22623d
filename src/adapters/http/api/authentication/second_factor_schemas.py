"""Request and response models of the second factor."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from adapters.http.core.schemas import OkResponse, RequestBodyModel, ResponseModel, Timestamp
from domain.sign_in.second_factor import PresentedSecondFactor

PasskeyResponseField = Annotated[
    dict[str, Any],
    Field(
        description="The response of the browser: the JSON of `PublicKeyCredential.toJSON()`.",
        json_schema_extra={"examples": [{"id": "q0N1", "rawId": "q0N1", "type": "public-key", "response": {}}]},
    ),
]


class SecondFactorLoginRequest(RequestBodyModel):
    challenge_token: str = Field(min_length=1, max_length=128, description="From the 202 response of the login.")
    totp: str | None = Field(default=None, max_length=16, description="The 6-digit code that the app shows.")
    recovery_code: str | None = Field(default=None, max_length=32)
    passkey: PasskeyResponseField | None = None
    device_token: str | None = Field(default=None, max_length=1024, description="That of this client's last login.")

    @model_validator(mode="after")
    def _one_factor(self) -> SecondFactorLoginRequest:
        if sum(one is not None for one in (self.totp, self.recovery_code, self.passkey)) != 1:
            raise ValueError("send exactly one of totp, recoveryCode and passkey")
        return self

    def to_factor(self) -> PresentedSecondFactor:
        return PresentedSecondFactor(self.totp, self.recovery_code, self.passkey)


class StepUpRequest(RequestBodyModel):
    password: str | None = Field(default=None, max_length=256, description="For a user without a second factor.")
    totp: str | None = Field(default=None, max_length=16)
    recovery_code: str | None = Field(default=None, max_length=32)
    passkey: PasskeyResponseField | None = None

    @model_validator(mode="after")
    def _one_proof(self) -> StepUpRequest:
        if sum(one is not None for one in (self.password, self.totp, self.recovery_code, self.passkey)) != 1:
            raise ValueError("send exactly one of password, totp, recoveryCode and passkey")
        return self

    def to_factor(self) -> PresentedSecondFactor | None:
        return None if self.password is not None else PresentedSecondFactor(self.totp, self.recovery_code, self.passkey)


class TotpConfirmRequest(RequestBodyModel):
    code: str = Field(min_length=6, max_length=16)


class StepUpResponse(OkResponse):
    valid_until: Timestamp


class SecondFactorStatusResponse(ResponseModel):
    enabled: bool
    required: bool = Field(description="Whether this installation requires one for your role.")
    totp: bool = Field(description="Whether you have an authenticator app.")
    passkeys: int = Field(description="Number of your passkeys.")
    recovery_codes_left: int


class TotpSetupResponse(ResponseModel):
    secret: str = Field(json_schema_extra={"format": "password"}, description="Base 32, for typing in.")
    otpauth_uri: str = Field(json_schema_extra={"format": "password"})
    qr_svg: str = Field(json_schema_extra={"format": "password"}, description="The URI as a QR code: an SVG image.")
    qr_rows: list[str] = Field(
        json_schema_extra={"format": "password"},
        description="The same code as rows of modules, `1` for dark, without the quiet zone: for pages that insert no markup.",
    )


class RecoveryCodesResponse(ResponseModel):
    recovery_codes: list[str] = Field(description="Each replaces a second factor once. Shown only now. Empty if you have some.")
