"""A person's sessions: listed, ended one by one or all others, and what ends them is felt by the next call on every instance."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role
from domain.kernel.clock import DAY_MS
from support.http import PASSWORD
from support.in_process_app import ApiCaller, InProcessApp, in_process_app
from support.two_instances import DATABASES, TwoInstances, two_instances

OWNER = "owner@example.com"
NEW = "another good password"


@pytest.fixture(params=DATABASES)
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[TwoInstances]:
    with tempfile.TemporaryDirectory() as folder:
        async with two_instances(Path(folder), request.param) as made:
            yield made


async def sign_in(app: InProcessApp, password: str = PASSWORD, agent: str = "a browser") -> tuple[ApiCaller, str]:
    """The caller and its refresh token."""
    credentials = {"email": OWNER, "password": password}
    answer = await app.caller().send("POST", "/auth/login", credentials, headers={"User-Agent": agent})
    assert answer.status_code == 200, answer.text
    tokens = answer.json()
    return app.caller(Authorization=f"Bearer {tokens['accessToken']}"), tokens["refreshToken"]


def at(app: InProcessApp, caller: ApiCaller) -> ApiCaller:
    return app.caller(**caller.headers)


async def status(caller: ApiCaller) -> int:
    return (await caller.send("GET", "/auth/me")).status_code


async def refresh(app: InProcessApp, token: str) -> int:
    return (await app.caller().send("POST", "/auth/refresh", {"refreshToken": token})).status_code


async def test_the_list_shows_every_sign_in_and_its_last_use(pair: TwoInstances) -> None:
    phone, token = await sign_in(pair.first, agent="a\x7f phone " + "x" * 300)
    pair.second.clock.forward(minutes=5)
    assert await refresh(pair.second, token) == 200
    shown: list[dict[str, Any]] = await at(pair.first, phone).send_ok("GET", "/auth/sessions")
    assert [one["current"] for one in shown] == [True, False]
    [mine, other] = shown
    assert mine["lastUsedAt"] > mine["createdAt"] == other["createdAt"] == other["lastUsedAt"]
    assert mine["address"] == "127.0.0.1"
    assert mine["userAgent"].startswith("python-httpx"), "the program of the last use"


async def test_ending_a_session_is_felt_by_its_next_call_on_every_instance(pair: TwoInstances) -> None:
    phone, token = await sign_in(pair.second)
    assert await status(phone) == 200
    shown = await phone.send_ok("GET", "/auth/sessions")
    [its_id] = [one["sessionId"] for one in shown if one["current"]]
    await pair.owner.send_ok("DELETE", f"/auth/sessions/{its_id}")
    assert [await status(phone), await status(at(pair.first, phone)), await refresh(pair.second, token)] == [401, 401, 401]
    assert await status(pair.owner_at_second) == 200
    assert (await pair.owner.send("DELETE", f"/auth/sessions/{its_id}")).status_code == 404, "it has ended already"


async def test_signing_out_everywhere_else_leaves_only_the_present_session(pair: TwoInstances) -> None:
    others = [await sign_in(app) for app in (pair.first, pair.second)]
    await pair.owner.send_ok("DELETE", "/auth/sessions")
    assert [await status(at(pair.second, caller)) for caller, _ in others] == [401, 401]
    assert [await refresh(pair.second, token) for _, token in others] == [401, 401]
    assert len(await pair.owner_at_second.send_ok("GET", "/auth/sessions")) == 1


async def test_a_changed_password_ends_every_session_on_every_instance(pair: TwoInstances) -> None:
    phone, token = await sign_in(pair.second)
    body = {"currentPassword": PASSWORD, "newPassword": NEW}
    await pair.owner.send_ok("POST", "/auth/password/change", body)
    assert [await status(one) for one in (phone, at(pair.first, phone), pair.owner, pair.owner_at_second)] == [401] * 4
    assert await refresh(pair.second, token) == 401
    await sign_in(pair.second, NEW)


async def test_after_a_logout_the_access_token_lives_on_and_the_session_is_not_listed(pair: TwoInstances) -> None:
    phone, token = await sign_in(pair.second)
    await pair.first.caller().send_ok("POST", "/auth/logout", {"refreshToken": token})
    assert await status(phone) == 200
    assert len(await phone.send_ok("GET", "/auth/sessions")) == 1
    assert await refresh(pair.second, token) == 401


async def test_a_role_change_is_felt_by_the_next_call_on_every_instance(pair: TwoInstances) -> None:
    membership_id = await pair.first.create_member(pair.account, "admin@example.com", Role.ADMIN)
    admin = await pair.second.sign_in("admin@example.com")
    assert (await admin.send("POST", "/keys", {"name": "Robot"})).status_code == 201
    await pair.owner.send_ok("PATCH", f"/members/{membership_id}", {"role": "Viewer"})
    assert (await admin.send("POST", "/keys", {"name": "Robot"})).status_code == 403


async def test_the_operator_ends_the_sessions_of_a_user_whose_password_is_set(pair: TwoInstances) -> None:
    await pair.first.services.operator.set_password(OWNER, NEW)
    assert await status(pair.owner_at_second) == 401


@pytest.mark.parametrize("role", [Role.MEMBER, Role.VIEWER])
async def test_every_role_changes_its_password_with_the_current_one(pair: TwoInstances, role: Role) -> None:
    await pair.first.create_member(pair.account, "person@example.com", role)
    person = await pair.first.sign_in("person@example.com")
    await person.send_ok("POST", "/auth/password/change", {"currentPassword": PASSWORD, "newPassword": NEW})
    answer = await pair.second.caller().send("POST", "/auth/login", {"email": "person@example.com", "password": NEW})
    assert answer.status_code == 200


async def test_guessing_the_current_password_ends_after_ten_tries(pair: TwoInstances) -> None:
    guess = {"currentPassword": "a wrong guess", "newPassword": NEW}
    callers = [pair.owner, pair.owner_at_second] * 6
    codes = [(await caller.send("POST", "/auth/password/change", guess)).json()["error"] for caller in callers]
    assert codes == ["PASSWORD_MISMATCH"] * 10 + ["LOGIN_THROTTLED"] * 2
    right = {"currentPassword": PASSWORD, "newPassword": NEW}
    assert (await pair.owner.send("POST", "/auth/password/change", right)).status_code == 429
    pair.first.clock.forward(minutes=15)
    phone, _ = await sign_in(pair.first)
    assert (await phone.send("POST", "/auth/password/change", right)).status_code == 200


async def test_a_session_ends_for_good_however_often_it_is_refreshed(tmp_path: Path) -> None:
    async with in_process_app(tmp_path, session_days=40) as app:
        await app.create_account(OWNER)
        _, token = await sign_in(app)
        for _ in range(3):
            app.clock.forward(DAY_MS * 13)
            answer = await app.caller().send("POST", "/auth/refresh", {"refreshToken": token})
            assert answer.status_code == 200, answer.text
            token = answer.json()["refreshToken"]
        app.clock.forward(DAY_MS)
        answer = await app.caller().send("POST", "/auth/refresh", {"refreshToken": token})
        assert (answer.status_code, answer.json()["error"]) == (401, "TOKEN_EXPIRED")
