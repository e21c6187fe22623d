"""Refresh token families against a model, through HTTP and real SQLite: a family has at most one valid token, whatever thief and
owner do."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from domain.kernel.caller import Role
from security.state_machines import run_machine, running_app
from support.http import PASSWORD
from support.in_process_app import InProcessApp
from support.thoroughness import usual_or_thorough
from support.two_instances import DATABASES

DAY_MS = 86_400_000
_numbers = count(1)


class Families(RuleBasedStateMachine):
    """The model: the valid token of each family, with its expiry; a family without one has ended."""

    tokens = Bundle("tokens")

    def __init__(self, runner: asyncio.Runner, program: InProcessApp) -> None:
        super().__init__()
        self.runner, self.program = runner, program
        self.email = f"ada{next(_numbers)}@example.com"
        self.live: dict[int, tuple[str, int]] = {}
        self.family_of: dict[str, int] = {}
        self.families = 0
        self.password = PASSWORD
        self.is_member = True

    def post(self, path: str, body: Any, **headers: str) -> Any:
        return self.runner.run(self.program.caller(**headers).send("POST", path, body))

    @initialize()
    def begin(self) -> None:
        self.account = self.runner.run(self.program.create_account(f"owner-{self.email}"))
        self.membership_id = self.runner.run(self.program.create_member(self.account, self.email, Role.ADMIN))

    def remember(self, family: int, token: str) -> str:
        assert token not in self.family_of
        self.family_of[token] = family
        self.live[family] = (token, self.program.clock.now_ms() + 30 * DAY_MS)
        return token

    def sign_in(self) -> Any:
        return self.post("/auth/login", {"email": self.email, "password": self.password})

    def expect(self, token: str) -> tuple[int, str | None]:
        """The expected response to a refresh, and its effect on the model except for a new token."""
        family = self.family_of[token]
        live = self.live.get(family)
        if live is None or not self.is_member:
            return 401, "UNAUTHENTICATED"
        if live[0] != token:
            del self.live[family]
            return 401, "UNAUTHENTICATED"
        if self.program.clock.now_ms() >= live[1]:
            return 401, "TOKEN_EXPIRED"
        return 200, None

    @precondition(lambda self: self.is_member)
    @rule(target=tokens)
    def login(self) -> str:
        answer = self.sign_in()
        assert answer.status_code == 200, answer.text
        self.families += 1
        return self.remember(self.families, answer.json()["refreshToken"])

    @rule(target=tokens, token=tokens)
    def refresh(self, token: str) -> str:
        expected = self.expect(token)
        answer = self.post("/auth/refresh", {"refreshToken": token})
        assert (answer.status_code, answer.json().get("error")) == expected
        return self.remember(self.family_of[token], answer.json()["refreshToken"]) if expected[0] == 200 else token

    @rule(token=tokens, times=st.integers(2, 6))
    def refresh_at_once(self, token: str, times: int) -> None:
        """At most one of several concurrent uses succeeds; the reuse by the others then ends the family."""
        expected = self.expect(token)

        async def all_at_once() -> list[int]:
            nobody = self.program.caller()
            calls = (nobody.send("POST", "/auth/refresh", {"refreshToken": token}) for _ in range(times))
            return [answer.status_code for answer in await asyncio.gather(*calls)]

        statuses = self.runner.run(all_at_once())
        assert statuses.count(200) == (1 if expected[0] == 200 else 0)
        if expected[0] == 200:
            self.live.pop(self.family_of[token], None)

    @rule(token=tokens)
    def logout(self, token: str) -> None:
        assert self.post("/auth/logout", {"refreshToken": token}).json() == {"ok": True}
        self.live.pop(self.family_of[token], None)

    @precondition(lambda self: self.is_member)
    @rule()
    def change_the_password(self) -> None:
        self.program.clock.forward(minutes=2)
        answer = self.sign_in()
        bearer = {"Authorization": f"Bearer {answer.json()['accessToken']}"}
        assert self.post("/auth/password/request-otp", None, **bearer).status_code == 200
        code = next(word.rstrip(".") for word in self.program.mail.mails[-1][2].split() if word.rstrip(".").isdigit())
        self.password = f"{PASSWORD} {next(_numbers)}"
        changed = self.post("/auth/change-password", {"otp": code, "newPassword": self.password}, **bearer)
        assert changed.status_code == 200, changed.text
        self.live.clear()
        again = self.post("/auth/change-password", {"otp": code, "newPassword": PASSWORD}, **bearer)
        assert again.status_code == 401, "the change ends every session"
        assert self.post("/auth/refresh", {"refreshToken": answer.json()["refreshToken"]}).status_code == 401

    @precondition(lambda self: self.is_member and len(self.family_of) > 6)
    @rule()
    def leave(self) -> None:
        owner = self.runner.run(self.program.sign_in(f"owner-{self.email}"))
        self.runner.run(owner.send_ok("DELETE", f"/members/{self.membership_id}"))
        self.is_member = False

    @rule()
    def wait(self) -> None:
        self.program.clock.forward(days=11)

    @invariant()
    def at_most_one_token_of_a_family_is_live(self) -> None:
        async def usable() -> set[str]:
            digest = self.program.program.adapters.digest
            async with self.program.services.uow.read() as tx:
                rows = {token: await tx.refresh_tokens.get(digest.sha256(token)) for token in self.family_of}
            return {token for token, row in rows.items() if row and row.spent_ms is None and row.revoked_ms is None}

        found = self.runner.run(usable())
        assert found <= {token for token, _ in self.live.values()}
        assert not self.is_member or found == {token for token, _ in self.live.values()}


@pytest.mark.parametrize("database", DATABASES)
def test_a_family_has_one_live_token_at_most(tmp_path: Path, database: str) -> None:
    with running_app(tmp_path, database) as (runner, program):
        run_machine(
            lambda: Families(runner, program), examples=15 if database == "sqlite" else usual_or_thorough(4, 15), steps=20
        )
