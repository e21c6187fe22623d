"""The dashboard's sign-in: the refresh token is in a cookie, and no other site's page can use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import Morsel, SimpleCookie

import httpx
import pytest

from adapters.http.core.middleware import HttpMiddlewareSettings
from adapters.http.dashboard.session_routes import dashboard_session_blueprint
from support.http import PASSWORD, HttpClient, HttpWorld, serving

PROOF = {"X-CSRF-Protection": "1"}
LOGIN = {"email": "ada@example.com", "password": PASSWORD}


def world(*, is_tls: bool = False) -> HttpWorld:
    return HttpWorld(
        blueprints=lambda made: [
            dashboard_session_blueprint(logins=made.logins, passkeys=made.passkey_sign_ins, sessions=made.sessions, is_tls=is_tls)
        ],
        settings=HttpMiddlewareSettings(cors_origins=("https://app.example.com",)),
    )


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    async with serving(world()) as client:
        await client.world.account()
        yield client


async def send(http: HttpClient, action: str, body: object = None, *, token: str = "", **headers: str) -> httpx.Response:
    cookie = {"Cookie": f"latchboard_refresh={token}"} if token else {}
    http.raw.cookies.clear()  # each call says itself which cookie it sends
    return await http.raw.post(f"/dashboard/session/{action}", json=body, headers={**PROOF, **cookie, **headers})


def cookies_of(answer: httpx.Response) -> SimpleCookie:
    found = SimpleCookie()
    for header in answer.headers.get_list("Set-Cookie"):
        found.load(header)
    return found


def refresh_cookie(answer: httpx.Response) -> Morsel[str]:
    return next(morsel for name, morsel in cookies_of(answer).items() if "refresh" in name)


def cookie_of(answer: httpx.Response) -> str:
    return refresh_cookie(answer).value


async def test_the_refresh_token_is_in_a_cookie_that_no_script_reads_and_other_sites_do_not_send(http: HttpClient) -> None:
    answer = await send(http, "login", LOGIN)
    assert set(answer.json()) == {"accessToken", "expiresIn", "user"}
    morsel = refresh_cookie(answer)
    assert (morsel.key, morsel["httponly"], morsel["samesite"], morsel["path"]) == (
        "latchboard_refresh",
        True,
        "Strict",
        "/dashboard/session",
    )
    assert (morsel["max-age"], morsel["domain"], morsel["secure"]) == (str(30 * 86_400), "", "")
    assert morsel.value not in answer.text


async def test_behind_tls_the_cookie_never_travels_without_it() -> None:
    async with serving(world(is_tls=True)) as http:
        await http.world.account()
        answer = await send(http, "login", LOGIN)
        morsel = refresh_cookie(answer)
        assert (morsel.key, morsel["secure"]) == ("__Secure-latchboard_refresh", True)


async def test_a_session_is_renewed_by_its_cookie_and_a_spent_cookie_ends_it(http: HttpClient) -> None:
    first = cookie_of(await send(http, "login", LOGIN))
    answer = await send(http, "refresh", token=first)
    assert (answer.status_code, set(answer.json())) == (200, {"accessToken", "expiresIn"})
    second = cookie_of(answer)
    assert second != first
    assert (await send(http, "refresh", token=first)).status_code == 401
    assert (await send(http, "refresh", token=second)).status_code == 401


async def test_signing_out_ends_the_session_and_deletes_the_cookie(http: HttpClient) -> None:
    token = cookie_of(await send(http, "login", LOGIN))
    answer = await send(http, "logout", token=token)
    assert (answer.json(), cookie_of(answer)) == ({"ok": True, "providerSignOutUrl": None}, "")
    assert "Max-Age=0" in answer.headers["Set-Cookie"]
    assert (await send(http, "refresh", token=token)).status_code == 401
    for other in ("", "never heard of", "x" * 5_000):
        assert (await send(http, "logout", token=other)).json() == {"ok": True, "providerSignOutUrl": None}


@pytest.mark.parametrize(
    "headers",
    [
        {"X-CSRF-Protection": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},  # another port or a neighbour under the same domain
        {"Sec-Fetch-Site": "none"},
    ],
)
@pytest.mark.parametrize("action", ["login", "refresh", "logout"])
async def test_a_page_of_another_site_can_use_none_of_it(http: HttpClient, action: str, headers: dict[str, str]) -> None:
    token = cookie_of(await send(http, "login", LOGIN))
    body = LOGIN if action == "login" else None
    answer = await send(http, action, body, token=token, **headers)
    assert (answer.status_code, answer.json()["error"]) == (403, "CROSS_SITE_REQUEST")
    assert "Set-Cookie" not in answer.headers
    assert (await send(http, "refresh", token=token)).status_code == 200, "and it changed nothing"


async def test_cors_permits_neither_the_header_nor_the_cookie_to_an_origin_that_may_read(http: HttpClient) -> None:
    headers = {"Origin": "https://app.example.com", "Access-Control-Request-Method": "POST"}
    answer = await http.raw.options("/dashboard/session/refresh", headers=headers)
    assert "X-CSRF-Protection".lower() not in answer.headers["Access-Control-Allow-Headers"].lower()
    assert "Access-Control-Allow-Credentials" not in answer.headers


async def test_the_api_keeps_its_bearer_tokens_and_knows_no_cookie(http: HttpClient) -> None:
    answer = await http.post("/auth/login", LOGIN)
    assert answer.json()["refreshToken"]
    assert "Set-Cookie" not in answer.headers
    cookie = {"Cookie": f"latchboard_refresh={answer.json()['refreshToken']}"}
    assert (await http.raw.get("/api/v1/auth/me", headers=cookie)).status_code == 401
    assert (await http.raw.post("/api/v1/auth/refresh", json={}, headers=cookie)).status_code == 400
