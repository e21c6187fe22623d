"""The dashboard's sign-in with OpenID Connect.

    GET  /dashboard/session/methods         → {oidc: {name} or null}, for the sign-in page
    POST /dashboard/session/oidc/begin      {returnTo?} → {url}, and a cookie that binds the sign-in to this browser
    GET  /dashboard/session/oidc/callback   where the provider sends the browser back; sends it on to a page of the dashboard

The cookie of a sign-in is `SameSite=Lax`: the browser must send it when it comes back from the provider's site. The callback only
ever redirects to the dashboard's own page; what it has to say is behind the `#`: `signed-in/<page>`, `confirm/<token>/<methods>`
for the second factor, or `sign-in-failed/<CODE>`.
"""

from __future__ import annotations

from quart import Response, request
from werkzeug.http import dump_cookie

from adapters.http.core.callers import AllowedCallers, client_info
from adapters.http.core.operation import ApiBlueprint, HttpHandlerResult
from adapters.http.core.schemas import RequestBodyModel, ResponseModel
from adapters.http.dashboard.session_routes import URL_PREFIX, RefreshTokenCookie, require_own_page
from domain.kernel.errors import DomainError
from domain.oidc.sign_in import SIGN_IN_TTL_MS, OidcAuthorizationResponse, OidcSignInService
from domain.sign_in.login import SecondFactorNeeded

COOKIE = "latchboard_oidc"
SECURE_COOKIE = f"__Secure-{COOKIE}"
COOKIE_PATH = f"{URL_PREFIX}/oidc"
MAX_PARAMETER_LENGTH = 2_048
"""Of `code` and `state`."""


class OidcMethodResponse(ResponseModel):
    name: str


class SignInMethodsResponse(ResponseModel):
    oidc: OidcMethodResponse | None


class OidcBeginRequest(RequestBodyModel):
    return_to: str = ""


class OidcBeginResponse(ResponseModel):
    url: str


def oidc_blueprint(*, oidc: OidcSignInService | None, is_tls: bool) -> ApiBlueprint:
    bp = ApiBlueprint("dashboard_oidc", None, URL_PREFIX)

    @bp.operation("GET /methods", AllowedCallers.ANYONE, "How people sign in")
    async def sign_in_methods() -> SignInMethodsResponse:
        return SignInMethodsResponse(oidc=None if oidc is None else OidcMethodResponse(name=oidc.provider.name))

    if oidc is not None:
        _add_flow_routes(bp, oidc, is_tls)
    return bp


def _add_flow_routes(bp: ApiBlueprint, oidc: OidcSignInService, is_tls: bool) -> None:
    cookie_name, refresh_cookie = SECURE_COOKIE if is_tls else COOKIE, RefreshTokenCookie(is_tls=is_tls)

    def cookie_header(value: str, max_age_s: int) -> str:
        return dump_cookie(cookie_name, value, max_age=max_age_s, path=COOKIE_PATH, secure=is_tls, httponly=True, samesite="Lax")

    @bp.operation("POST /oidc/begin", AllowedCallers.ANYONE, "Begin a sign-in with the identity provider")
    async def begin_oidc(body: OidcBeginRequest) -> HttpHandlerResult[OidcBeginResponse]:
        require_own_page()
        url, cookie = await oidc.begin(body.return_to)
        return HttpHandlerResult(OidcBeginResponse(url=url), cookies=[cookie_header(cookie, SIGN_IN_TTL_MS // 1000)])

    @bp.get("/oidc/callback")
    async def finish_oidc() -> Response:
        headers = [("Set-Cookie", cookie_header("", 0))]
        try:
            cookie = request.cookies.get(cookie_name, "")
            result, return_path = await oidc.finish(_provider_return(), cookie, client=client_info())
        except DomainError as error:
            return _redirect(f"sign-in-failed/{error.code}", headers)
        if isinstance(result, SecondFactorNeeded):
            return _redirect(f"confirm/{result.token}/{'-'.join(result.methods)}", headers)
        headers.append(("Set-Cookie", refresh_cookie.set_header(result.tokens)))
        return _redirect(f"signed-in/{return_path}", headers)


def _provider_return() -> OidcAuthorizationResponse:
    found = {name: request.args.get(name, "")[:MAX_PARAMETER_LENGTH] for name in ("state", "code", "error")}
    return OidcAuthorizationResponse(**found, issuer=request.args.get("iss"))


def _redirect(place: str, headers: list[tuple[str, str]]) -> Response:
    """To a page of the dashboard. The address of this response has a code in it, so it is neither kept nor told to anybody."""
    response = Response("", status=303)
    response.headers["Location"] = f"/#/{place}"
    response.headers["Cache-Control"] = "no-store"
    for name, value in headers:
        response.headers.add(name, value)
    return response
