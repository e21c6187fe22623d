"""The dashboard's own sign-in: its refresh token is in a cookie that no script can read.

    POST /dashboard/session/login     {email, password} → {accessToken, expiresIn, user}, and the cookie
    POST /dashboard/session/login/second-factor   the second step, after login answered 202 {challengeToken, methods, expiresIn}
    POST /dashboard/session/refresh   → {accessToken, expiresIn}, and the next cookie
    POST /dashboard/session/logout    → {ok}; ends the session and deletes the cookie

The cookie is `HttpOnly`, `SameSite=Strict` and sent to these paths only. A browser attaches it by itself, so each call must
also prove that the dashboard's own page makes it: by a header that a page of another site cannot set without asking (CORS never
permits it), and by `Sec-Fetch-Site` where a browser sends it. Programs use `/api/v1/auth`, which knows no cookie.
"""

from __future__ import annotations

from typing import Any

from quart import request
from werkzeug.http import dump_cookie

from adapters.http.api.accounts.schemas import (
    LoginRequest,
    SecondFactorNeededResponse,
    SignedInUserResponse,
    second_factor_needed_response,
    signed_in_user,
)
from adapters.http.api.accounts.second_factor_schemas import SecondFactorLoginRequest
from adapters.http.core.auth import RequiredAccess, client_info
from adapters.http.core.device_cookie import device_cookie_header, read_device_tokens
from adapters.http.core.operation import ApiBlueprint, operation
from adapters.http.core.request_handling import ApiResponse
from adapters.http.core.schemas import OkResponse, ResponseModel
from domain.accounts.login import LoginResult, LoginService, SecondFactorNeeded
from domain.accounts.policy import REFRESH_TOKEN_LENGTH, REFRESH_TOKEN_TTL_MS
from domain.accounts.sessions import SessionService
from domain.accounts.token_issuer import TokenPair
from domain.kernel.errors import PermissionDenied, Unauthenticated

URL_PREFIX = "/dashboard/session"
CSRF_HEADER = "X-CSRF-Protection"
COOKIE = "latchboard_refresh"
SECURE_COOKIE = f"__Secure-{COOKIE}"
"""Browsers accept a name with this prefix over TLS only, so that nobody without TLS can plant the cookie."""


class DashboardTokensResponse(ResponseModel):
    access_token: str
    expires_in: int


class DashboardLoginResponse(DashboardTokensResponse):
    user: SignedInUserResponse


def dashboard_session_blueprint(*, logins: LoginService, sessions: SessionService, is_tls: bool) -> ApiBlueprint:
    """`is_tls`: browsers reach the service over TLS, so the cookie must never travel without it."""
    bp = ApiBlueprint("dashboard_session", None, URL_PREFIX)
    cookie = _RefreshCookie(is_tls=is_tls)

    def signed_in_response(result: LoginResult) -> ApiResponse[Any]:
        tokens = result.tokens
        content = DashboardLoginResponse(
            access_token=tokens.access_token, expires_in=tokens.expires_in_s, user=signed_in_user(result)
        )
        return ApiResponse(content, cookies=[cookie.set_header(tokens), device_cookie_header(result.device_tokens)])

    @operation(
        bp,
        "POST",
        "/login",
        RequiredAccess.ANYONE,
        "Sign in",
        returns={200: DashboardLoginResponse, 202: SecondFactorNeededResponse},
    )
    async def dashboard_login(body: LoginRequest) -> ApiResponse[Any]:
        _require_own_page()
        result = await logins.login(body.email, body.password, client=client_info(read_device_tokens()))
        if isinstance(result, SecondFactorNeeded):
            return ApiResponse(second_factor_needed_response(result))
        return signed_in_response(result)

    @operation(bp, "POST", "/login/second-factor", RequiredAccess.ANYONE, "Complete the sign-in")
    async def dashboard_second_factor(body: SecondFactorLoginRequest) -> ApiResponse[DashboardLoginResponse]:
        _require_own_page()
        client = client_info(read_device_tokens())
        return signed_in_response(await logins.complete(body.challenge_token, body.to_factor(), client=client))

    @operation(bp, "POST", "/refresh", RequiredAccess.ANYONE, "Renew the session")
    async def dashboard_refresh() -> ApiResponse[DashboardTokensResponse]:
        _require_own_page()
        token = cookie.find()
        if token is None:
            raise Unauthenticated("Please sign in.")
        tokens = await sessions.refresh(token, client=client_info())
        content = DashboardTokensResponse(access_token=tokens.access_token, expires_in=tokens.expires_in_s)
        return ApiResponse(content, cookies=[cookie.set_header(tokens)])

    @operation(bp, "POST", "/logout", RequiredAccess.ANYONE, "Sign out")
    async def dashboard_logout() -> ApiResponse[OkResponse]:
        _require_own_page()
        if (token := cookie.find()) is not None:
            await sessions.logout(token, client=client_info())
        return ApiResponse(OkResponse(), cookies=[cookie.delete_header()])

    return bp


def _require_own_page() -> None:
    """Raises PermissionDenied `CROSS_SITE_REQUEST` unless the call comes from a page of this origin."""
    fetch_site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if request.headers.get(CSRF_HEADER) != "1" or fetch_site != "same-origin":
        raise PermissionDenied(
            "Only the dashboard of this address may call this. Programs sign in with POST /api/v1/auth/login.",
            code="CROSS_SITE_REQUEST",
        )


class _RefreshCookie:
    def __init__(self, *, is_tls: bool) -> None:
        self._name = SECURE_COOKIE if is_tls else COOKIE
        self._is_tls = is_tls

    def find(self) -> str | None:
        """The refresh token of the request."""
        token = request.cookies.get(self._name, "")
        return token if 0 < len(token) <= REFRESH_TOKEN_LENGTH else None

    def set_header(self, tokens: TokenPair) -> str:
        return self._dump(tokens.refresh_token, REFRESH_TOKEN_TTL_MS // 1000)

    def delete_header(self) -> str:
        return self._dump("", 0)

    def _dump(self, value: str, max_age_s: int) -> str:
        return dump_cookie(
            self._name, value, max_age=max_age_s, path=URL_PREFIX, secure=self._is_tls, httponly=True, samesite="Strict"
        )
