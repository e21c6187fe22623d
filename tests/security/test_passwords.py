"""A password that is among the first guesses is refused wherever a person chooses one, and the answer says what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.crypto.passwords import MAX_RATED, Argon2PasswordHasher
from domain.kernel.caller import Role
from domain.kernel.errors import ValidationFailed
from support.in_process_app import PASSWORD, InProcessApp, in_process_app

EMAIL = "ada@example.com"
WEAK = ["password", "12345678", "Passw0rd!", "qwertyuiop", "iloveyou2024", "latchboard1", "aaaaaaaaaaaaaaaaaaaaaaaa", EMAIL]
GOOD = ["correct horse battery", "mZ4!kq9vTe", "four words only you know", "ünïcødé påsswörd", "\U0001f40e staple battery"]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[InProcessApp]:
    async with in_process_app(tmp_path) as program:
        await program.create_account(EMAIL)
        yield program


@pytest.mark.parametrize("password", WEAK)
async def test_a_weak_password_is_refused_at_a_change(app: InProcessApp, password: str) -> None:
    caller = await app.sign_in(EMAIL)
    answer = await caller.send("POST", "/auth/password/change", {"currentPassword": PASSWORD, "newPassword": password})
    problem = answer.json()
    assert (answer.status_code, problem["error"], problem["details"][0]["field"]) == (400, "PASSWORD_WEAK", "newPassword")
    assert "four words" in problem["message"] + problem["details"][0]["message"]
    assert (await caller.send("GET", "/auth/me")).status_code == 200
    await app.sign_in(EMAIL)


@pytest.mark.parametrize("password", GOOD)
async def test_a_good_one_is_accepted(app: InProcessApp, password: str) -> None:
    caller = await app.sign_in(EMAIL)
    await caller.send_ok("POST", "/auth/password/change", {"currentPassword": PASSWORD, "newPassword": password})


async def test_a_weak_password_is_refused_for_new_members_and_by_invitation_and_on_the_command_line(app: InProcessApp) -> None:
    owner = await app.sign_in(EMAIL)
    for password in ("password", "grace@example.com", "grace hopper"):
        body = {"email": "grace@example.com", "name": "Grace Hopper", "role": "Viewer", "password": password}
        answer = await owner.send("POST", "/members", body)
        assert (answer.status_code, answer.json()["error"]) == (400, "PASSWORD_WEAK")
    invited = await owner.send_ok("POST", "/invitations", {"email": "eve@example.com", "name": "Eve", "role": Role.VIEWER})
    token = invited["link"].rpartition("/")[2]
    for password, status in (("password", 400), ("eve@example.com", 400), (PASSWORD, 201)):
        answer = await app.caller().send("POST", "/invitations/accept", {"token": token, "password": password})
        assert answer.status_code == status, answer.text
    for password in ("password", EMAIL):
        with pytest.raises(ValidationFailed) as refused:
            await app.services.operator.set_password(EMAIL, password)
        assert refused.value.code == "PASSWORD_WEAK"


async def test_rating_looks_at_so_many_characters_and_no_more() -> None:
    """Its work grows with the square of the length: 256 characters would hold a core for seconds."""
    hasher = Argon2PasswordHasher(memory_kib=8, passes=1)
    try:
        assert await hasher.is_guessable("a" * 256, ())
        assert await hasher.is_guessable("a" * MAX_RATED + "correct horse battery", ())
        assert not await hasher.is_guessable("correct horse battery" * 12, ())
    finally:
        hasher.close()
