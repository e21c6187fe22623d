"""The first account by a one-time link: who has it, until when, and which of several visitors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from adapters.http.dashboard.session_routes import first_run_blueprint
from domain.team.first_run import FIRST_RUN_TTL_MS, FirstRunService
from support.http import HttpClient, HttpWorld, serving

PROOF = {"X-CSRF-Protection": "1"}
OWNER = {"name": "Ada", "email": "ada@example.com", "password": "correct horse"}


class FirstRunWorld(HttpWorld):
    def __init__(self) -> None:
        super().__init__(blueprints=lambda _: [first_run_blueprint(self.first_run, is_tls=False)])
        self.done: list[bool] = []
        self.first_run = FirstRunService(
            operator=self.operator,
            logins=self.logins,
            clock=self.clock,
            ids=self.ids,
            digest=self.digest,
            on_done=lambda: self.done.append(True),
        )


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    async with serving(FirstRunWorld()) as client:
        yield client


def world_of(http: HttpClient) -> FirstRunWorld:
    assert isinstance(http.world, FirstRunWorld)
    return http.world


async def send(http: HttpClient, body: dict[str, Any], below: str = "", headers: dict[str, str] = PROOF) -> httpx.Response:
    return await http.raw.post(f"/dashboard/session/first-run{below}", json=body, headers=headers)


async def state(http: HttpClient, token: str = "") -> str:
    found: str = (await send(http, {"token": token}, "/state")).json()["state"]
    return found


async def test_the_first_visitor_becomes_the_owner_and_is_signed_in_and_the_link_is_spent(http: HttpClient) -> None:
    token = world_of(http).first_run.issue_token()
    assert (await state(http), await state(http, token)) == ("LINK_NEEDED", "READY")
    answer = await send(http, {"token": token, **OWNER})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["user"]["role"], answer.json()["user"]["email"]) == ("Owner", "ada@example.com")
    assert "latchboard_refresh=" in answer.headers["Set-Cookie"]
    me = await http.raw.get("/api/v1/auth/me", headers={"Authorization": f"Bearer {answer.json()['accessToken']}"})
    assert (me.json()["name"], me.json()["accountName"]) == ("Ada", "My account")
    second = await send(http, {"token": token, **OWNER, "email": "eve@example.com"})
    assert (second.status_code, second.json()["error"]) == (409, "ACCOUNT_EXISTS")
    assert (await state(http, token), world_of(http).done) == ("DONE", [True])


async def test_of_two_visitors_at_once_one_wins_and_the_other_is_told(http: HttpClient) -> None:
    token = world_of(http).first_run.issue_token()
    bodies = [{"token": token, **OWNER, "email": f"{name}@example.com"} for name in ("ada", "eve")]
    answers = await asyncio.gather(*(send(http, body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    assert len(await world_of(http).operator.list_accounts()) == 1


async def test_without_the_link_with_an_old_or_an_expired_one_nobody_becomes_the_owner(http: HttpClient) -> None:
    world = world_of(http)
    old = world.first_run.issue_token()
    token = world.first_run.issue_token()
    for wrong in ("x" * 32, old, token[:-1]):
        answer = await send(http, {"token": wrong, **OWNER})
        assert (answer.status_code, answer.json()["error"]) == (403, "FIRST_RUN_LINK_INVALID")
    world.clock.forward(FIRST_RUN_TTL_MS)
    assert await state(http, token) == "LINK_EXPIRED"
    answer = await send(http, {"token": token, **OWNER})
    assert (answer.status_code, answer.json()["error"]) == (403, "FIRST_RUN_LINK_EXPIRED")
    assert await world.operator.has_no_accounts()


async def test_an_account_made_on_the_command_line_ends_the_link(http: HttpClient) -> None:
    world = world_of(http)
    token = world.first_run.issue_token()
    await world.operator.create_account(name="Home", email="op@example.com", password="long enough")
    answer = await send(http, {"token": token, **OWNER})
    assert (answer.status_code, answer.json()["error"], await state(http, token)) == (409, "ACCOUNT_EXISTS", "DONE")


@pytest.mark.parametrize(
    ("wrong", "field"), [({"password": "short"}, "password"), ({"email": "ada"}, "email"), ({"name": " "}, "name")]
)
async def test_a_wrong_value_is_refused_like_on_the_command_line_and_does_not_spend_the_link(
    http: HttpClient, wrong: dict[str, str], field: str
) -> None:
    token = world_of(http).first_run.issue_token()
    answer = await send(http, {"token": token, **OWNER, **wrong})
    assert (answer.status_code, answer.json()["details"][0]["field"]) == (400, field)
    assert await state(http, token) == "READY"


async def test_a_page_of_another_site_can_neither_ask_nor_make_the_account(http: HttpClient) -> None:
    token = world_of(http).first_run.issue_token()
    for headers in ({}, {**PROOF, "Sec-Fetch-Site": "cross-site"}):
        for below in ("", "/state"):
            body = {"token": token, **({} if below else OWNER)}
            assert (await send(http, body, below, headers)).json()["error"] == "CROSS_SITE_REQUEST"
