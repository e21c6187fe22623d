"""The dashboard's own sign-in: its refresh token is in a cookie that no script can read.

    POST /dashboard/session/login     {email, password} → {accessToken, expiresIn, user}, and the cookie
    POST /dashboard/session/login/second-factor   the second step, after login answered 202 {challengeToken, methods, expiresIn}
    POST /dashboard/session/login/passkey   {passkey}: instead of both
    POST /dashboard/session/refresh   → {accessToken, expiresIn}, and the next cookie
    POST /dashboard/session/logout    → {ok, providerSignOutUrl}; ends the session and deletes the cookie

The cookie is `HttpOnly`, `SameSite=Strict` and sent to these paths only. A browser attaches it by itself, so each call must
also prove that the dashboard's own page makes it: by a header that a page of another site cannot set without asking (CORS never
permits it), and by `Sec-Fetch-Site` where a browser sends it. Programs use `/api/v1/auth`, which knows no cookie.

On the first-run page the first visitor makes the account of an empty installation:

    POST /dashboard/session/first-run/state   {token} → {state}
    POST /dashboard/session/first-run         {token, name, email, password} → {accessToken, expiresIn, user}, and the cookie

These are outside `/api/v1`, where no account can be created. The token is the end of the one-time link that the service prints
(`domain/team/first_run.py`); the page has it in the fragment of its address, which browsers never send.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import Field
from quart import request
from werkzeug.http import dump_cookie

from adapters.http.api.authentication import LoginRequest, SecondFactorNeededResponse, SignedInUserResponse
from adapters.http.api.second_factor import PasskeyLoginRequest, SecondFactorLoginRequest
from adapters.http.core.callers import AllowedCallers, client_info, device_cookie_header, read_device_tokens
from adapters.http.core.operation import ApiBlueprint, HttpHandlerResult
from adapters.http.core.schemas import DisplayName, RequestBodyModel, ResponseModel
from domain.accounts.policy import REFRESH_TOKEN_LENGTH, REFRESH_TOKEN_TTL_MS
from domain.kernel.dataclasses import service
from domain.kernel.errors import PermissionDenied, Unauthenticated
from domain.sign_in.login import LoginService, SecondFactorNeeded
from domain.sign_in.passkeys import PasskeySignInService
from domain.sign_in.sessions import OpenedSession, TokenPair, UserSessionService
from domain.team.first_run import FirstRunLinkStatus, FirstRunService

URL_PREFIX = "/dashboard/session"
COOKIE = "latchboard_refresh"
SECURE_COOKIE = f"__Secure-{COOKIE}"
"""Browsers accept a name with this prefix over TLS only, so that nobody without TLS can plant the cookie."""


@service
class RefreshTokenCookie:
    """`is_tls`: browsers reach the service over TLS, so the cookie must never travel without it."""

    is_tls: bool

    @property
    def name(self) -> str:
        return SECURE_COOKIE if self.is_tls else COOKIE

    def find(self) -> str | None:
        """The refresh token of the request."""
        token = request.cookies.get(self.name, "")
        return token if 0 < len(token) <= REFRESH_TOKEN_LENGTH else None

    def set_header(self, tokens: TokenPair) -> str:
        return self._dump(tokens.refresh_token, REFRESH_TOKEN_TTL_MS // 1000)

    def delete_header(self) -> str:
        return self._dump("", 0)

    def _dump(self, value: str, max_age_s: int) -> str:
        return dump_cookie(
            self.name, value, max_age=max_age_s, path=URL_PREFIX, secure=self.is_tls, httponly=True, samesite="Strict"
        )


CSRF_HEADER = "X-CSRF-Protection"


def require_own_page() -> None:
    """Raises PermissionDenied `CROSS_SITE_REQUEST` unless the call comes from a page of this origin."""
    fetch_site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if request.headers.get(CSRF_HEADER) != "1" or fetch_site != "same-origin":
        raise PermissionDenied(
            "Only the dashboard of this address may call this. Programs sign in with POST /api/v1/auth/login.",
            code="CROSS_SITE_REQUEST",
        )


class DashboardTokensResponse(ResponseModel):
    access_token: str
    expires_in: int


class DashboardLoginResponse(DashboardTokensResponse):
    user: SignedInUserResponse


class DashboardLogoutResponse(ResponseModel):
    ok: bool = True
    provider_sign_out_url: str | None
    """Where whoever signed in with the identity provider signs out of it."""


def dashboard_session_blueprint(
    *,
    logins: LoginService,
    passkeys: PasskeySignInService,
    sessions: UserSessionService,
    is_tls: bool,
    provider_sign_out_url: Callable[[], Awaitable[str | None]] | None = None,
) -> ApiBlueprint:
    """`is_tls`: browsers reach the service over TLS, so the cookie must never travel without it."""
    bp = ApiBlueprint("dashboard_session", None, URL_PREFIX)
    cookie = RefreshTokenCookie(is_tls=is_tls)

    @bp.operation(
        "POST /login", AllowedCallers.ANYONE, "Sign in", returns={200: DashboardLoginResponse, 202: SecondFactorNeededResponse}
    )
    async def dashboard_login(body: LoginRequest) -> HttpHandlerResult[Any]:
        require_own_page()
        result = await logins.login(body.email, body.password, client=client_info(read_device_tokens()))
        if isinstance(result, SecondFactorNeeded):
            return HttpHandlerResult(SecondFactorNeededResponse.from_domain(result))
        return _signed_in(result, cookie)

    @bp.operation("POST /login/second-factor", AllowedCallers.ANYONE, "Complete the sign-in")
    async def dashboard_second_factor(body: SecondFactorLoginRequest) -> HttpHandlerResult[DashboardLoginResponse]:
        require_own_page()
        client = client_info(read_device_tokens())
        return _signed_in(await logins.complete(body.challenge_token, body.to_factor(), client=client), cookie)

    @bp.operation("POST /login/passkey", AllowedCallers.ANYONE, "Sign in with a passkey")
    async def dashboard_passkey(body: PasskeyLoginRequest) -> HttpHandlerResult[DashboardLoginResponse]:
        require_own_page()
        result = await passkeys.sign_in(body.passkey, client=client_info(read_device_tokens()))
        return _signed_in(result, cookie)

    @bp.operation("POST /refresh", AllowedCallers.ANYONE, "Renew the session")
    async def dashboard_refresh() -> HttpHandlerResult[DashboardTokensResponse]:
        require_own_page()
        token = cookie.find()
        if token is None:
            raise Unauthenticated("Please sign in.")
        tokens = await sessions.refresh(token, client=client_info())
        content = DashboardTokensResponse(access_token=tokens.access_token, expires_in=tokens.expires_in_s)
        return HttpHandlerResult(content, cookies=[cookie.set_header(tokens)])

    @bp.operation("POST /logout", AllowedCallers.ANYONE, "Sign out")
    async def dashboard_logout() -> HttpHandlerResult[DashboardLogoutResponse]:
        require_own_page()
        if (token := cookie.find()) is not None:
            await sessions.logout(token, client=client_info())
        url = None if provider_sign_out_url is None else await provider_sign_out_url()
        return HttpHandlerResult(DashboardLogoutResponse(provider_sign_out_url=url), cookies=[cookie.delete_header()])

    return bp


class FirstRunStateRequest(RequestBodyModel):
    token: str = Field(default="", max_length=128)


class FirstRunStateResponse(ResponseModel):
    state: FirstRunLinkStatus


class FirstRunRequest(RequestBodyModel):
    token: str = Field(min_length=1, max_length=128)
    name: DisplayName
    email: str = Field(max_length=254)
    password: str = Field(min_length=8, max_length=256)


def first_run_blueprint(first_run: FirstRunService, *, is_tls: bool) -> ApiBlueprint:
    """`is_tls`: as of `dashboard_session_blueprint`."""
    bp = ApiBlueprint("first_run", None, URL_PREFIX)
    cookie = RefreshTokenCookie(is_tls=is_tls)

    @bp.operation("POST /first-run/state", AllowedCallers.ANYONE, "Ask whether the account must still be made")
    async def first_run_state(body: FirstRunStateRequest) -> FirstRunStateResponse:
        require_own_page()
        return FirstRunStateResponse(state=await first_run.get_state(body.token))

    @bp.operation("POST /first-run", AllowedCallers.ANYONE, "Make the first account")
    async def create_first_owner(body: FirstRunRequest) -> HttpHandlerResult[DashboardLoginResponse]:
        require_own_page()
        client = client_info(read_device_tokens())
        result = await first_run.create_owner(body.token, name=body.name, email=body.email, password=body.password, client=client)
        return _signed_in(result, cookie)

    return bp


def _signed_in(result: OpenedSession, cookie: RefreshTokenCookie) -> HttpHandlerResult[Any]:
    tokens = result.tokens
    content = DashboardLoginResponse.of(tokens, expires_in=tokens.expires_in_s, user=SignedInUserResponse.from_domain(result))
    return HttpHandlerResult(content, cookies=[cookie.set_header(tokens), device_cookie_header(result.device_tokens)])
