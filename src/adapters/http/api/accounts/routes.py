"""Authentication routes: sign in and out, refresh tokens, the current user, change the password."""

from __future__ import annotations

from adapters.http.api.accounts.schemas import (
    CurrentUserResponse,
    LoginRequest,
    LoginResponse,
    PasswordChangeRequest,
    RefreshTokenRequest,
    TokensResponse,
    login_response,
    tokens_response,
)
from adapters.http.core.auth import RequiredAccess, client_address, current_session
from adapters.http.core.operation import ApiBlueprint, operation
from adapters.http.core.schemas import OkResponse
from domain.accounts.password_change import PasswordService
from domain.accounts.sessions import SessionService


def auth_blueprint(*, sessions: SessionService, passwords: PasswordService) -> ApiBlueprint:
    bp = ApiBlueprint("auth", "Authentication")
    _add_session_routes(bp, sessions)
    _add_profile_route(bp, sessions)
    _add_password_routes(bp, passwords)
    return bp


def _add_session_routes(bp: ApiBlueprint, sessions: SessionService) -> None:
    @operation(
        bp,
        "POST",
        "/auth/login",
        RequiredAccess.ANYONE,
        "Sign in",
        description="An unknown email and a wrong password get the same response.",
        errors={401: "INVALID_CREDENTIALS", 429: "LOGIN_THROTTLED"},
    )
    async def login(body: LoginRequest) -> LoginResponse:
        return login_response(await sessions.login(body.email, body.password, address=client_address()))

    @operation(
        bp,
        "POST",
        "/auth/refresh",
        RequiredAccess.ANYONE,
        "Exchange a refresh token for new tokens",
        description="A refresh token can be used once. Using it again ends all sessions that began with the same login.",
        errors={401: "UNAUTHENTICATED TOKEN_EXPIRED"},
    )
    async def refresh(body: RefreshTokenRequest) -> TokensResponse:
        return tokens_response(await sessions.refresh(body.refresh_token, address=client_address()))

    @operation(
        bp,
        "POST",
        "/auth/logout",
        RequiredAccess.ANYONE,
        "Sign out",
        description="Invalidates the refresh token. An unknown token is accepted. The access token stays valid until it expires.",
    )
    async def logout(body: RefreshTokenRequest) -> OkResponse:
        await sessions.logout(body.refresh_token, address=client_address())
        return OkResponse()


def _add_profile_route(bp: ApiBlueprint, sessions: SessionService) -> None:
    @operation(bp, "GET", "/auth/me", RequiredAccess.SESSION, "Get the current user")
    async def me() -> CurrentUserResponse:
        """The current state of the user, the account and the role of this session."""
        profile = await sessions.get_profile(current_session())
        user, membership = profile.member.user, profile.member.membership
        return CurrentUserResponse(
            user_id=user.user_id,
            email=user.email,
            name=user.name,
            email_verified=user.email_verified,
            account_id=membership.account_id,
            account_name=profile.account.name,
            plan=profile.account.plan,
            role=membership.role.value,
            device_count=profile.device_count,
        )


def _add_password_routes(bp: ApiBlueprint, passwords: PasswordService) -> None:
    @operation(
        bp,
        "POST",
        "/auth/password/request-otp",
        RequiredAccess.SESSION,
        "Request a code to change the password",
        description="Sends a code by mail, valid for 10 minutes. A new code can be requested after 60 seconds. Requires the "
        "role Admin or Owner.",
        errors={403: "ROLE_REQUIRED", 429: "OTP_COOLDOWN"},
    )
    async def request_otp() -> OkResponse:
        await passwords.send_code(current_session())
        return OkResponse()

    @operation(
        bp,
        "POST",
        "/auth/change-password",
        RequiredAccess.SESSION,
        "Change the password with a mailed code",
        description="Invalidates all refresh tokens of the user. A code allows 5 attempts.",
        errors={400: "OTP_INVALID", 403: "ROLE_REQUIRED"},
    )
    async def change_password(body: PasswordChangeRequest) -> OkResponse:
        await passwords.change_password(current_session(), body.otp, body.new_password)
        return OkResponse()
