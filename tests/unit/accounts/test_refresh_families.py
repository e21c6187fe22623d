"""Refresh families against a model: any order of logins, refreshes, reuses, logouts and waiting."""

from __future__ import annotations

import asyncio

from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from domain.kernel.errors import Unauthenticated
from domain.sign_in.model import ClientInfo
from support.http import PASSWORD, HttpWorld

DAY_MS = 86_400_000


class PlainHasher:
    async def hash(self, password: str) -> str:
        return password

    async def verify(self, password_hash: str, password: str) -> bool:
        return password_hash == password

    async def verify_dummy(self, password: str) -> None:
        return

    def needs_rehash(self, password_hash: str) -> bool:
        return False


class Families(RuleBasedStateMachine):
    """The model: the one live token of each family, with its end; a family without one is over."""

    tokens = Bundle("tokens")

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.world = HttpWorld(hasher=PlainHasher())
        self.runner.run(self.world.account())
        self.live: dict[int, tuple[str, int]] = {}
        self.family_of: dict[str, int] = {}

    def teardown(self) -> None:
        self.runner.close()

    def remember(self, family: int, token: str) -> str:
        assert token not in self.family_of
        self.family_of[token] = family
        self.live[family] = (token, self.world.clock.now_ms() + 30 * DAY_MS)
        return token

    @rule(target=tokens)
    def login(self) -> str:
        signed_in = self.runner.run(self.world.logins.login("ada@example.com", PASSWORD, client=ClientInfo("")))
        return self.remember(len(self.family_of) + 1000 * len(self.live), signed_in.tokens.refresh_token)

    @rule(target=tokens, token=tokens)
    def refresh(self, token: str) -> str:
        family = self.family_of[token]
        live = self.live.get(family)
        is_live = live is not None and live[0] == token
        may = is_live and live is not None and self.world.clock.now_ms() < live[1]
        try:
            made = self.runner.run(self.world.sessions.refresh(token, client=ClientInfo("")))
        except Unauthenticated:
            assert not may
            if not is_live:
                self.live.pop(family, None)
            return token
        assert may
        return self.remember(family, made.refresh_token)

    @rule(token=tokens)
    def logout(self, token: str) -> None:
        self.runner.run(self.world.sessions.logout(token, client=ClientInfo("")))
        self.live.pop(self.family_of[token], None)

    @rule()
    def wait(self) -> None:
        self.world.clock.forward(days=11)

    @invariant()
    def at_most_one_token_of_a_family_is_live(self) -> None:
        if not hasattr(self, "world"):
            return

        async def usable() -> dict[str, bool]:
            async with self.world.uow.read() as tx:
                rows = {token: await tx.refresh_tokens.get(self.world.digest.sha256(token)) for token in self.family_of}
            return {token: row.spent_ms is None and row.revoked_ms is None for token, row in rows.items()}

        expected = {token for token, _ in self.live.values()}
        assert {token for token, is_usable in self.runner.run(usable()).items() if is_usable} == expected


TestFamilies = Families.TestCase
TestFamilies.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
