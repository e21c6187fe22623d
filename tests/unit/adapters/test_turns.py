"""Turns at long work: one for each account, in a circle, with bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapters.http.core.turns import RESTS_FROM_S, AccountTurns
from domain.kernel.errors import RateLimited
from domain.kernel.ids import AccountId
from support.waiting import TIMEOUT_S

LOUD, QUIET, THIRD = (AccountId(f"acc_{name}") for name in ("loud", "quiet", "third"))


class Work:
    """Requests that begin when they have their turn and end when they are told to."""

    def __init__(self, turns: AccountTurns) -> None:
        self.turns = turns
        self.begun: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, account_id: AccountId, name: str) -> None:
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._run(account_id, name))
        await self.settle()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _run(self, account_id: AccountId, name: str) -> None:
        async with self.turns.take(account_id):
            self.begun.append(name)
            await self._ends[name].wait()


@asynccontextmanager
async def work(turns: AccountTurns) -> AsyncIterator[Work]:
    made = Work(turns)
    try:
        yield made
    finally:
        for task in made.tasks.values():
            task.cancel()
        await asyncio.gather(*made.tasks.values(), return_exceptions=True)


async def test_an_account_has_one_turn_at_a_time_however_often_it_asks() -> None:
    async with work(AccountTurns(rests=False)) as asked:
        for number in range(4):
            await asked.ask(LOUD, f"loud {number}")
        assert asked.begun == ["loud 0"]
        await asked.ask(QUIET, "quiet")
        assert asked.begun == ["loud 0", "quiet"]  # at once, beside it


async def test_accounts_follow_one_another_in_a_circle() -> None:
    async with work(AccountTurns(rests=False, at_once=1)) as asked:
        for number in range(3):
            await asked.ask(LOUD, f"loud {number}")
        await asked.ask(QUIET, "quiet")
        await asked.ask(THIRD, "third")
        for name in ("loud 0", "loud 1", "quiet", "third", "loud 2"):
            await asked.end(name)
        assert asked.begun == ["loud 0", "loud 1", "quiet", "third", "loud 2"]


async def test_who_asks_beyond_the_bound_is_refused_and_told_to_wait() -> None:
    async with work(AccountTurns(max_waiting=2)) as asked:
        for number in range(3):
            await asked.ask(LOUD, f"loud {number}")
        with pytest.raises(RateLimited) as refused:
            async with asked.turns.take(LOUD):
                pass
        assert refused.value.retry_after == 1
        assert "one of them at a time" in refused.value.message
        assert refused.value.already_logged  # a refusal writes nothing
        await asked.ask(QUIET, "quiet")
        assert "quiet" in asked.begun


async def test_who_waits_too_long_is_refused_and_leaves_no_place() -> None:
    async with work(AccountTurns(max_wait_s=0.01)) as asked:
        await asked.ask(LOUD, "first")
        with pytest.raises(RateLimited):
            async with asked.turns.take(LOUD):
                pass
        assert asked.turns.waiting_count == 0
        await asked.end("first")
        await asked.ask(LOUD, "next")
        assert asked.begun == ["first", "next"]


async def test_a_turn_that_nobody_waits_for_any_more_goes_to_the_next() -> None:
    async with work(AccountTurns(rests=False)) as asked:
        for name in ("first", "gone", "next"):
            await asked.ask(LOUD, name)
        asked.tasks["gone"].cancel()
        await asked.end("first")  # before `gone` has noticed
        assert asked.begun == ["first", "next"]


async def test_one_that_is_cancelled_with_its_turn_just_given_passes_it_on() -> None:
    async with work(AccountTurns(rests=False)) as asked:
        for name in ("first", "gone", "next"):
            await asked.ask(LOUD, name)
        asked._ends["first"].set()
        while asked.turns.waiting_count == 2:
            await asyncio.sleep(0)
        asked.tasks["gone"].cancel()
        await asked.settle()
        assert asked.begun[-1] == "next"


async def test_after_long_work_an_account_rests_and_another_does_not_wait_for_that() -> None:
    async with work(AccountTurns(at_once=1)) as asked:
        await asked.ask(LOUD, "long")
        await asyncio.sleep(RESTS_FROM_S)
        await asked.end("long")
        await asked.ask(LOUD, "after the rest")
        await asked.ask(QUIET, "quiet")
        assert asked.begun == ["long", "quiet"]
        await asked.end("quiet")
        async with asyncio.timeout(TIMEOUT_S):
            while "after the rest" not in asked.begun:
                await asyncio.sleep(0.01)


async def test_commands_to_many_devices_never_rest() -> None:
    async with work(AccountTurns(rests=False)) as asked:
        await asked.ask(LOUD, "long")
        await asyncio.sleep(RESTS_FROM_S)
        await asked.end("long")
        await asked.ask(LOUD, "next")
        assert asked.begun == ["long", "next"]
