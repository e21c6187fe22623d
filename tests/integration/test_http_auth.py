"""Signing in, over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from domain.kernel.caller import Role
from support.http import PASSWORD, HttpClient, HttpWorld, serving


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    async with serving(HttpWorld()) as client:
        yield client


async def test_login_gives_tokens_and_the_user(http: HttpClient) -> None:
    answer = await http.sign_in()
    assert answer["expiresIn"] == 900
    assert answer["user"]["email"] == "ada@example.com"
    assert answer["user"]["role"] == "Owner"
    assert set(answer["user"]) == {"accountId", "userId", "email", "name", "plan", "role", "emailVerified", "onboardingCompleted"}
    me = (await http.get("/auth/me")).json()
    assert me["accountName"] == "Analytical Engines"
    assert me["hasPassword"] is True
    assert (me["hasGoogleAuth"], me["hasGithubAuth"], me["deviceCount"]) == (False, False, 0)


async def test_an_unknown_email_is_answered_as_a_wrong_password_is(http: HttpClient) -> None:
    await http.sign_in()
    http.headers = {"X-Request-Id": "the-same-request"}
    wrong = await http.post("/auth/login", {"email": "ada@example.com", "password": "not this one"})
    unknown = await http.post("/auth/login", {"email": "eve@example.com", "password": "not this one"})
    assert wrong.status_code == unknown.status_code == 401
    assert wrong.json()["error"] == "INVALID_CREDENTIALS"
    assert wrong.content == unknown.content


async def test_guessing_is_throttled_with_retry_after(http: HttpClient) -> None:
    await http.sign_in()
    http.headers = {}
    for _ in range(5):
        answer = await http.post("/auth/login", {"email": "ada@example.com", "password": "guess"})
        assert answer.status_code == 401
    answer = await http.post("/auth/login", {"email": "ada@example.com", "password": PASSWORD})
    assert (answer.status_code, answer.json()["error"]) == (429, "LOGIN_THROTTLED")
    assert answer.headers["Retry-After"] == str(answer.json()["retryAfter"]) == "1"
    http.world.clock.forward(seconds=1)
    answer = await http.post("/auth/login", {"email": "ada@example.com", "password": PASSWORD})
    assert answer.status_code == 200


async def test_a_refresh_token_is_spent_once_and_reuse_ends_the_family(http: HttpClient) -> None:
    first = await http.sign_in()
    http.headers = {}
    second = await http.post("/auth/refresh", {"refreshToken": first["refreshToken"]})
    assert second.status_code == 200
    assert set(second.json()) == {"accessToken", "refreshToken", "expiresIn"}
    again = await http.post("/auth/refresh", {"refreshToken": first["refreshToken"]})
    assert again.status_code == 401
    follower = await http.post("/auth/refresh", {"refreshToken": second.json()["refreshToken"]})
    assert follower.status_code == 401


async def test_logout_revokes_the_refresh_token_and_accepts_an_unknown_one(http: HttpClient) -> None:
    tokens = await http.sign_in()
    http.headers = {}
    for token in (tokens["refreshToken"], tokens["refreshToken"], "never heard of"):
        answer = await http.post("/auth/logout", {"refreshToken": token})
        assert (answer.status_code, answer.json()) == (200, {"ok": True})
    answer = await http.post("/auth/refresh", {"refreshToken": tokens["refreshToken"]})
    assert answer.status_code == 401


async def test_an_access_token_ends_after_fifteen_minutes(http: HttpClient) -> None:
    await http.sign_in()
    http.world.clock.forward(minutes=14.9)
    assert (await http.get("/auth/me")).status_code == 200
    http.world.clock.forward(minutes=0.1)
    answer = await http.get("/auth/me")
    assert (answer.status_code, answer.json()["error"]) == (401, "TOKEN_EXPIRED")


async def test_the_password_changes_with_a_mailed_code_and_ends_all_sessions(http: HttpClient) -> None:
    tokens = await http.sign_in()
    assert (await http.post("/auth/password/request-otp")).json() == {"ok": True}
    cooling = await http.post("/auth/password/request-otp", {})
    assert (cooling.status_code, cooling.json()["error"]) == (429, "OTP_COOLDOWN")
    [(to, _, text)] = http.world.mail.mails
    assert to == "ada@example.com"
    code = next(word.strip(".") for word in text.split() if word.strip(".").isdigit())
    wrong = await http.post("/auth/change-password", {"otp": "000000x", "newPassword": "a better password"})
    assert (wrong.status_code, wrong.json()["error"]) == (400, "OTP_INVALID")
    answer = await http.post("/auth/change-password", {"otp": code, "newPassword": "a better password"})
    assert (answer.status_code, answer.json()) == (200, {"ok": True})
    assert (await http.post("/auth/refresh", {"refreshToken": tokens["refreshToken"]})).status_code == 401
    answer = await http.post("/auth/login", {"email": "ada@example.com", "password": "a better password"})
    assert answer.status_code == 200


@pytest.mark.parametrize("role", [Role.MEMBER, Role.VIEWER])
async def test_members_and_viewers_cannot_request_a_code(http: HttpClient, role: Role) -> None:
    await http.sign_in("grace@example.com", role)
    for path, body in (
        ("/auth/password/request-otp", None),
        ("/auth/change-password", {"otp": "123456", "newPassword": "a better password"}),
    ):
        answer = await http.post(path, body)
        assert (answer.status_code, answer.json()["error"]) == (403, "ROLE_REQUIRED")


async def test_an_id_in_the_body_of_a_deletion_is_refused_and_signs_nobody_out(http: HttpClient) -> None:
    await http.sign_in()
    other = (await http.get("/auth/sessions")).json()[0]["sessionId"]
    await http.sign_in()
    for body in ({"sessionId": other}, {"x": "y" * 1_000}, [], 0):
        answer = await http.call("DELETE", "/auth/sessions", body)
        assert (answer.status_code, answer.json()["error"]) == (400, "VALIDATION_ERROR")
        assert answer.json()["details"][0]["field"] == "body"
    assert len((await http.get("/auth/sessions")).json()) == 2
    assert (await http.call("DELETE", "/auth/sessions", {})).status_code == 200
    assert len((await http.get("/auth/sessions")).json()) == 1
