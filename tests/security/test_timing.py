"""The response time reveals no secret: the same work is done. The tests count the work, because time is noisy on shared
machines."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from domain.keys.model import compose_key
from security.people import a_key
from support.http import PASSWORD
from support.in_process_app import InProcessApp, in_process_app
from support.waiting import TIMEOUT_S


@pytest.fixture
async def program() -> AsyncIterator[InProcessApp]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as made:
            await made.create_account("ada@example.com")
            yield made


async def login(program: InProcessApp, email: str, password: str) -> tuple[httpx.Response, list[str]]:
    """The response, and the hashes that were verified for it."""
    program.login_hasher.verified.clear()
    answer = await program.caller().send("POST", "/auth/login", {"email": email, "password": password})
    return answer, list(program.login_hasher.verified)


def watched_compare() -> Any:
    return patch.object(hmac, "compare_digest", wraps=hmac.compare_digest)


def cost(password_hash: str) -> str:
    """Algorithm and parameters, which determine the time of a verification."""
    return password_hash.rpartition("$")[0].rpartition("$")[0]


@pytest.mark.parametrize("password", ["wrong password", "", "x" * 1024, "pässwörd \U0001f600"])
async def test_an_unknown_email_costs_one_verification_of_the_same_parameters(program: InProcessApp, password: str) -> None:
    known, spent = await login(program, "ada@example.com", password)
    unknown, spent_on_nobody = await login(program, "nobody@example.com", password)
    assert [cost(one) for one in spent] == [cost(one) for one in spent_on_nobody]
    assert len(spent) == 1
    same = [re.sub(r'"requestId": ?"[^"]+"', "", answer.text) for answer in (known, unknown)]
    assert same[0] == same[1]
    assert set(known.headers) == set(unknown.headers)
    assert known.status_code == unknown.status_code == 401


async def test_a_user_without_an_account_costs_as_much_as_an_unknown_one(program: InProcessApp) -> None:
    owner = await program.sign_in("ada@example.com")
    body = {"email": "left@example.com", "name": "L", "role": "Viewer", "password": PASSWORD}
    member = await owner.send_ok("POST", "/members", body)
    await owner.send_ok("DELETE", f"/members/{member['membershipId']}")
    answer, spent = await login(program, "left@example.com", PASSWORD)
    assert (answer.status_code, len(spent)) == (401, 1)


async def test_a_throttled_login_costs_nothing_for_known_and_unknown_users(program: InProcessApp) -> None:
    for email in ("ada@example.com", "nobody@example.com"):
        while (await login(program, email, "wrong password"))[0].status_code == 401:
            pass
        answer, spent = await login(program, email, PASSWORD)
        assert (answer.status_code, spent) == (429, [])
        program.clock.forward(minutes=16)


async def test_a_key_is_looked_up_by_its_hash_and_compared_in_constant_time(program: InProcessApp) -> None:
    owner = await program.sign_in("ada@example.com")
    key, _ = await a_key(owner)
    secret = key.headers["X-Api-Key"]
    requested: list[bytes] = []
    digest = program.program.adapters.digest

    def plain(_: Any, text: str) -> bytes:
        requested.append(hashlib.sha256(text.encode()).digest())
        return requested[-1]

    with watched_compare() as compare, patch.object(type(digest), "sha256", plain):
        assert (await key.send("GET", "/devices")).status_code == 200
        assert (await program.caller(X_Api_Key=compose_key("b" * 40)).send("GET", "/devices")).status_code == 401
        malformed = await program.caller(X_Api_Key=secret[:-1]).send("GET", "/devices")
    expected = hashlib.sha256(secret.encode()).digest()
    assert malformed.status_code == 401
    assert [call.args for call in compare.call_args_list] == [(expected, expected)]
    assert requested == [expected, hashlib.sha256(compose_key("b" * 40).encode()).digest()]


async def test_a_one_time_code_is_compared_in_constant_time_with_counted_attempts(program: InProcessApp) -> None:
    owner = await program.sign_in("ada@example.com")
    await owner.send_ok("POST", "/auth/password/request-otp")
    with watched_compare() as compare:
        for number in range(8):
            body = {"otp": f"{number:06d}", "newPassword": "another password"}
            assert (await owner.send("POST", "/auth/change-password", body)).status_code == 400
    assert [len(call.args[0]) for call in compare.call_args_list] == [32] * 5


async def test_logins_that_wait_for_their_hash_do_not_delay_who_is_signed_in(program: InProcessApp) -> None:
    """Strangers who sign in by the hundred fill a queue of their own."""
    ada = await program.sign_in("ada@example.com")
    release = threading.Event()
    program.login_hasher._verify = lambda *_: release.wait(30)  # no login gets its answer before that
    email = "nobody@example.com"
    logins = [
        asyncio.create_task(program.caller().send("POST", "/auth/login", {"email": email, "password": "wrong password"}))
        for _ in range(80)
    ]
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while program.login_hasher._free_slots > 0:
                await asyncio.sleep(0)
        member = {"email": "grace@example.com", "name": "Grace", "role": "Viewer", "password": PASSWORD}
        await ada.send_ok("POST", "/members", member)
    finally:
        release.set()
        statuses = {answer.status_code for answer in await asyncio.gather(*logins)}
    assert 503 in statuses  # the queue of the logins was full
