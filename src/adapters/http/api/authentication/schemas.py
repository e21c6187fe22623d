"""Request and response models of authentication."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from adapters.http.core.schemas import RequestBodyModel, ResponseModel, Timestamp
from domain.sign_in.login import SecondFactorNeeded
from domain.sign_in.sessions import OpenedSession


class LoginRequest(RequestBodyModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"email": "ada@example.com", "password": "correct horse"}]})

    email: str = Field(max_length=320)
    password: str = Field(max_length=1024)
    device_token: str | None = Field(default=None, max_length=1024, description="That of this client's last login.")


class UnlockLinkRequest(RequestBodyModel):
    email: str = Field(max_length=320)


class UnlockRequest(RequestBodyModel):
    token: str = Field(min_length=1, max_length=128, description="The end of the link from the mail.")


class RefreshTokenRequest(RequestBodyModel):
    refresh_token: str = Field(min_length=1, max_length=512)


class PasswordChangeRequest(RequestBodyModel):
    current_password: str | None = Field(
        default=None, min_length=1, max_length=256, description="Required, unless you never set a password (`hasPassword`)."
    )
    new_password: str = Field(min_length=8, max_length=256)


class PasswordChangeByCodeRequest(RequestBodyModel):
    otp: str = Field(min_length=1, max_length=16, description="The 6-digit code from the mail.", examples=["041234"])
    new_password: str = Field(min_length=8, max_length=256)


class TokensResponse(ResponseModel):
    access_token: str = Field(description="JWT; send it as `Authorization: Bearer <accessToken>`.")
    refresh_token: str = Field(description="Valid for 30 days; can be used once.")
    expires_in: int = Field(description="Lifetime of the access token in seconds.", examples=[900])


class SignedInUserResponse(ResponseModel):
    account_id: str
    user_id: str
    email: str
    name: str
    plan: str
    role: str
    email_verified: bool
    onboarding_completed: bool


class SecondFactorNeededResponse(ResponseModel):
    second_factor_required: bool = True
    challenge_token: str = Field(description="Send it with the second factor to `POST /auth/login/second-factor`.")
    methods: list[str] = Field(examples=[["passkey", "totp", "recoveryCode"]])
    expires_in: int = Field(description="Seconds until the sign-in must begin again.", examples=[300])


class UnlockResponse(ResponseModel):
    device_token: str = Field(description="Send it at the next login.")


class LoginResponse(TokensResponse):
    device_token: str = Field(description="No credential. Send it at the next login of this client.")
    user: SignedInUserResponse


class CurrentUserResponse(ResponseModel):
    user_id: str
    email: str
    name: str
    email_verified: bool
    account_id: str
    account_name: str
    plan: str
    role: str
    device_count: int
    has_password: bool = Field(description="False for a user of an identity provider who never set one.")
    has_google_auth: bool = False
    has_github_auth: bool = False


class UserSessionResponse(ResponseModel):
    session_id: str
    created_at: Timestamp
    last_used_at: Timestamp
    address: str = Field(description="Empty for a session that began before addresses were kept.")
    user_agent: str
    current: bool = Field(description="Whether this is the session of the present call.")


def second_factor_needed_response(needed: SecondFactorNeeded) -> SecondFactorNeededResponse:
    return SecondFactorNeededResponse.of(needed, challenge_token=needed.token, expires_in=needed.expires_in_s)


def signed_in_user(signed_in: OpenedSession) -> SignedInUserResponse:
    member = signed_in.member
    return SignedInUserResponse.of(member.user, member.membership, signed_in.account, onboarding_completed=True)


def login_response(signed_in: OpenedSession) -> LoginResponse:
    return LoginResponse.of(
        signed_in.tokens,
        expires_in=signed_in.tokens.expires_in_s,
        device_token=signed_in.device_tokens,
        user=signed_in_user(signed_in),
    )
