"""The gate against a model: any sequence of grants, calls and passing time.

The model knows each grant's terms and the instants of its uses, and says which grant lets a call pass or which code refuses it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule

from adapters.engine.reference import ReferenceGrantEvaluator
from domain.grants.authorizer import Authorizer
from domain.grants.checks import GrantCheckInput
from domain.grants.model import Grant, GrantSubject, Scope, WeeklyGrantWindow
from domain.grants.reference import is_open
from domain.kernel.clock import MINUTE_MS
from domain.kernel.errors import DomainError, PermissionDenied, RateLimited
from support.device_world import DeviceWorld

COMMANDS = {"ON": False, "OFF": False, "STATUS": True}
ORDER = ["COMMAND_NOT_GRANTED", "SCOPE_TOO_NARROW", "GRANT_EXPIRED", "OUTSIDE_GRANT_WINDOW", "RATE_LIMITED"]

WINDOWS = st.one_of(
    st.just(WeeklyGrantWindow()),
    st.builds(
        WeeklyGrantWindow,
        active_days=st.frozensets(st.integers(0, 6)),
        from_minute=st.integers(0, 1439),
        to_minute=st.integers(0, 1439),
        timezone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    ),
)


@dataclass
class Known:
    grant: Grant
    uses: list[int] = field(default_factory=list)

    def refuses(self, command: str, now_ms: int) -> str | None:
        grant = self.grant
        if command not in grant.commands and "*" not in grant.commands:
            return "COMMAND_NOT_GRANTED"
        if grant.scope is Scope.READ and not COMMANDS[command]:
            return "SCOPE_TOO_NARROW"
        if grant.expires_ms is not None and now_ms >= grant.expires_ms:
            return "GRANT_EXPIRED"
        if not is_open(grant.window, now_ms):
            return "OUTSIDE_GRANT_WINDOW"
        if grant.rate_limit_per_minute is not None and self._recent(now_ms) >= grant.rate_limit_per_minute:
            return "RATE_LIMITED"
        return None

    def _recent(self, now_ms: int) -> int:
        return sum(now_ms - MINUTE_MS < at_ms <= now_ms for at_ms in self.uses)

    def free_ms(self, now_ms: int) -> int:
        """When the next use fits, found by trying."""
        limit = self.grant.rate_limit_per_minute or 0
        leaving = sorted(at_ms + MINUTE_MS for at_ms in self.uses if at_ms + MINUTE_MS > now_ms)
        return next(at_ms for at_ms in leaving if self._recent(at_ms) < limit)


class Gated(RuleBasedStateMachine):
    grants = Bundle("grants")

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.runner.run(self._begin())
        self.known: dict[str, Known] = {}

    async def _begin(self) -> None:
        self.world = await DeviceWorld().populate()
        self.device = await self.world.device()
        self.key = await self.world.key()
        self.gate = Authorizer(evaluator=ReferenceGrantEvaluator())

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.close()

    @rule(
        target=grants,
        commands=st.sampled_from([("ON",), ("ON", "OFF"), ("STATUS",), ("*",)]),
        scope=st.sampled_from([Scope.READ, Scope.WRITE, Scope.WRITE]),
        lasts_ms=st.one_of(st.none(), st.integers(1, 10 * MINUTE_MS)),
        window=WINDOWS,
        rate=st.one_of(st.none(), st.integers(1, 3)),
    )
    def give(
        self, commands: tuple[str, ...], scope: Scope, lasts_ms: int | None, window: WeeklyGrantWindow, rate: int | None
    ) -> str:
        grant = self.runner.run(
            self.world.grant(
                GrantSubject(key_id=self.key.key_id),
                self.device.device_id,
                commands,
                scope=scope,
                expires_ms=None if lasts_ms is None else self.world.clock.now_ms() + lasts_ms,
                window=window,
                rate_limit_per_minute=rate,
            )
        )
        self.known[grant.grant_id] = Known(grant)
        return grant.grant_id

    @rule(grant_id=consumes(grants))
    def take_back(self, grant_id: str) -> None:
        self.runner.run(self._delete(grant_id))
        del self.known[grant_id]

    async def _delete(self, grant_id: str) -> None:
        async with self.world.uow.write() as tx:
            await tx.grants.delete(self.known[grant_id].grant.grant_id)

    @rule(ms=st.one_of(st.integers(1, 61_000), st.sampled_from([1, 59_999, 60_000, 60 * MINUTE_MS])))
    def wait(self, ms: int) -> None:
        self.world.clock.forward(ms)

    @rule(command=st.sampled_from(sorted(COMMANDS)), times=st.integers(1, 4))
    def call(self, command: str, times: int) -> None:
        for _ in range(times):
            self._call(command)

    def _call(self, command: str) -> None:
        now_ms = self.world.clock.now_ms()
        reply = {known.grant.grant_id: known.refuses(command, now_ms) for known in self.known.values()}
        expected = next((grant_id for grant_id, code in reply.items() if code is None), None)
        answer = self.runner.run(self._answer(command))
        if expected is not None:
            assert isinstance(answer, Grant)
            assert answer.grant_id == expected
            if answer.rate_limit_per_minute is not None:
                self.known[expected].uses.append(now_ms)
            return
        nearest = max((code for code in reply.values() if code), key=ORDER.index, default="GRANT_MISSING")
        assert isinstance(answer, PermissionDenied | RateLimited)
        assert answer.code == nearest
        if isinstance(answer, RateLimited):
            full = [self.known[grant_id].free_ms(now_ms) for grant_id, code in reply.items() if code == "RATE_LIMITED"]
            assert answer.retry_after == max(1, -(-(min(full) - now_ms) // 1000))

    async def _answer(self, command: str | None) -> Grant | DomainError | None:
        """The grant that let the call pass, or the refusal."""
        is_query = command is None or COMMANDS[command]
        now_ms = self.world.clock.now_ms()
        try:
            async with self.world.uow.write() as tx:
                permit = await self.gate.authorize(tx, self.key, self.device, GrantCheckInput(command, is_query), now_ms)
        except DomainError as error:
            return error
        return permit.grant

    @rule()
    def read(self) -> None:
        now_ms = self.world.clock.now_ms()
        valid = [known.grant for known in self.known.values() if not known.grant.is_expired(now_ms)]
        answer = self.runner.run(self._answer(None))
        if valid:
            assert answer in valid
        else:
            assert isinstance(answer, PermissionDenied)
            assert answer.code == ("GRANT_EXPIRED" if self.known else "GRANT_MISSING")


TestGated = Gated.TestCase
TestGated.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
