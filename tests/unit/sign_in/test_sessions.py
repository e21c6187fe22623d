"""Sessions and their refresh tokens: single cases, then families against a model, in any order of logins, refreshes, reuses, logouts and
waiting."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from domain.kernel.caller import SessionCaller
from domain.kernel.errors import Unauthenticated
from domain.sign_in.login import OpenedSession
from domain.sign_in.model import ClientInfo
from support.http import PASSWORD, HttpWorld
from support.plain_hasher import PlainHasher

ADA = "ada@example.com"
HOME = "192.0.2.1"


def kinds(world: HttpWorld) -> list[str]:
    return [event.kind for event in world.uow.emitted_events]


async def test_a_token_expires_after_thirty_days(world: HttpWorld, owner: SessionCaller) -> None:
    signed_in = await world.logins.login(ADA, PASSWORD, client=ClientInfo(HOME))
    world.clock.forward(days=30)
    with pytest.raises(Unauthenticated) as caught:
        await world.sessions.refresh(signed_in.tokens.refresh_token, client=ClientInfo(HOME))
    assert caught.value.code == "TOKEN_EXPIRED"


async def test_of_concurrent_refreshes_with_one_token_one_succeeds_and_the_family_is_revoked(
    world: HttpWorld, owner: SessionCaller
) -> None:
    signed_in: OpenedSession = await world.logins.login(ADA, PASSWORD, client=ClientInfo(HOME))
    tries = (world.sessions.refresh(signed_in.tokens.refresh_token, client=ClientInfo(HOME)) for _ in range(20))
    results = await asyncio.gather(*tries, return_exceptions=True)
    [winner] = [result for result in results if not isinstance(result, BaseException)]
    assert "session_revoked" in kinds(world)
    with pytest.raises(Unauthenticated):
        await world.sessions.refresh(winner.refresh_token, client=ClientInfo(HOME))


async def test_each_login_starts_its_own_token_family(world: HttpWorld, owner: SessionCaller) -> None:
    first = await world.logins.login(ADA, PASSWORD, client=ClientInfo(HOME))
    second = await world.logins.login(ADA, PASSWORD, client=ClientInfo(HOME))
    await world.sessions.logout(first.tokens.refresh_token, client=ClientInfo(HOME))
    await world.sessions.refresh(second.tokens.refresh_token, client=ClientInfo(HOME))


DAY_MS = 86_400_000


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
