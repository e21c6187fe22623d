"""The first-run page's calls, on which the first visitor makes the account of an empty installation.

    POST /dashboard/session/first-run/state   {token} → {state}
    POST /dashboard/session/first-run         {token, name, email, password} → {accessToken, expiresIn, user}, and the cookie

They are outside `/api/v1`, where no account can be created. The token is the end of the one-time link that the service prints
(`domain/team/first_run.py`); the page has it in the fragment of its address, which browsers never send.
"""

from __future__ import annotations

from pydantic import Field

from adapters.http.core.caller_authentication import AllowedCallers, client_info
from adapters.http.core.known_browser_cookie import read_device_tokens
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.operation_handling import HttpHandlerResult
from adapters.http.core.schemas import DisplayName, RequestBodyModel, ResponseModel
from adapters.http.dashboard.refresh_token_cookie import URL_PREFIX, RefreshTokenCookie
from adapters.http.dashboard.same_origin_check import require_own_page
from adapters.http.dashboard.session_routes import DashboardLoginResponse, signed_in_response
from domain.team.first_run import FirstRunLinkStatus, FirstRunService


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
        return signed_in_response(result, cookie)

    return bp
