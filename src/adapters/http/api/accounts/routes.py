"""Signing in and out, and changing a password."""

from __future__ import annotations

from quart import Blueprint

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
from adapters.http.core.operation import operation
from adapters.http.core.schemas import OkResponse
from domain.accounts.password_change import PasswordService
from domain.accounts.sessions import SessionService

TAG = "Authentication"


def auth_blueprint(*, sessions: SessionService, passwords: PasswordService) -> Blueprint:
    bp = Blueprint("auth", __name__, url_prefix="/api/v1")
    _add_session_routes(bp, sessions)
    _add_profile_route(bp, sessions)
    _add_password_routes(bp, passwords)
    return bp


def _add_session_routes(bp: Blueprint, sessions: SessionService) -> None:
    @operation(
        bp,
        "POST",
        "/auth/login",
        tag=TAG,
        access=RequiredAccess.ANYONE,
        summary="Sign in",
        description="The answer to an unknown email is that to a wrong password.",
        errors={401: "INVALID_CREDENTIALS", 429: "LOGIN_THROTTLED"},
    )
    async def login(body: LoginRequest) -> LoginResponse:
        return login_response(await sessions.login(body.email, body.password, address=client_address()))

    @operation(
        bp,
        "POST",
        "/auth/refresh",
        tag=TAG,
        access=RequiredAccess.ANYONE,
        summary="Exchange a refresh token for new tokens",
        description="A refresh token is spent once. Using a spent one ends every session that follows from the same login.",
        errors={401: "UNAUTHENTICATED TOKEN_EXPIRED"},
    )
    async def refresh(body: RefreshTokenRequest) -> TokensResponse:
        return tokens_response(await sessions.refresh(body.refresh_token, address=client_address()))

    @operation(
        bp,
        "POST",
        "/auth/logout",
        tag=TAG,
        access=RequiredAccess.ANYONE,
        summary="Sign out",
        description="Ends the refresh token, also an unknown one. The access token stays valid until it expires.",
    )
    async def logout(body: RefreshTokenRequest) -> OkResponse:
        await sessions.logout(body.refresh_token, address=client_address())
        return OkResponse()


def _add_profile_route(bp: Blueprint, sessions: SessionService) -> None:
    @operation(bp, "GET", "/auth/me", tag=TAG, access=RequiredAccess.SESSION, summary="Who is signed in")
    async def me() -> CurrentUserResponse:
        """The person, the account and the role of this session, as they are now."""
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


def _add_password_routes(bp: Blueprint, passwords: PasswordService) -> None:
    @operation(
        bp,
        "POST",
        "/auth/password/request-otp",
        tag=TAG,
        access=RequiredAccess.SESSION,
        summary="Mail a code for changing the password",
        description="Needs the role Admin or Owner. The code is valid for 10 minutes; another can be asked for after 60 seconds.",
        errors={403: "ROLE_REQUIRED", 429: "OTP_COOLDOWN"},
    )
    async def request_otp() -> OkResponse:
        await passwords.send_code(current_session())
        return OkResponse()

    @operation(
        bp,
        "POST",
        "/auth/change-password",
        tag=TAG,
        access=RequiredAccess.SESSION,
        summary="Change the password with a mailed code",
        description="Ends every refresh token of the user. A code has 5 tries.",
        errors={400: "OTP_INVALID", 403: "ROLE_REQUIRED"},
    )
    async def change_password(body: PasswordChangeRequest) -> OkResponse:
        await passwords.change_password(current_session(), body.otp, body.new_password)
        return OkResponse()
