"""Turns at work that keeps the service busy for long, shared fairly among the accounts.

One event loop serves all accounts, and SQLite has one writer. A request that reads, compares or writes thousands of objects is
cut into small steps, so that a command of another account passes in between; but many of them at once would still leave it the
smallest part. So such an operation takes a turn: one at a time for each account, `at_once` for all accounts together, and the
accounts take turns among themselves, whoever has asked most often. Work of the kind `BULK` then rests for as long as it has
taken, `MAX_REST_S` at most: an account that asks without a pause gets half of the time.

`COMMANDS` are what switches many devices at once. They have turns of their own and never rest: what must be switched off does not
wait behind a plan.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import field
from enum import Enum
from time import monotonic

from domain.kernel.dataclasses import service
from domain.kernel.errors import RateLimited
from domain.kernel.ids import AccountId

TURN_ERRORS = {429: "RATE_LIMITED"}
MAX_AT_ONCE = 2
"""Of all accounts, of each kind: a second one, so that one whose database answers slowly does not stop the others."""
MAX_WAITING = 32
"""Of one account, of each kind."""
MAX_WAIT_S = 10.0
RESTS_FROM_S = 0.1
"""Shorter work is followed by no rest."""
MAX_REST_S = 1.0


class TurnKind(Enum):
    BULK = "bulk"
    COMMANDS = "commands"


@service
class AccountTurns:
    """The turns of one kind. Use it only on the event loop's thread."""

    rests: bool = True
    at_once: int = MAX_AT_ONCE
    max_waiting: int = MAX_WAITING
    max_wait_s: float = MAX_WAIT_S
    refused_count: int = field(default=0, init=False)
    _running: set[AccountId] = field(default_factory=set, init=False)
    _resting: set[AccountId] = field(default_factory=set, init=False)
    _waiting: OrderedDict[AccountId, deque[asyncio.Future[None]]] = field(default_factory=OrderedDict, init=False)
    """In the order in which the accounts come next."""

    @property
    def waiting_count(self) -> int:
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def take(self, account_id: AccountId) -> AsyncIterator[None]:
        """Raises RateLimited, when too many requests of the account wait, or when this one has waited too long."""
        await self._wait(account_id)
        began = monotonic()
        try:
            yield
        finally:
            self._end(account_id, monotonic() - began)

    async def _wait(self, account_id: AccountId) -> None:
        queue = self._waiting.get(account_id)
        if queue is None and self._is_free(account_id):
            self._running.add(account_id)
            return
        if queue is None:
            queue = self._waiting[account_id] = deque()
        if len(queue) >= self.max_waiting:
            raise self._refusal()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            async with asyncio.timeout(self.max_wait_s):
                await turn
        except BaseException as error:
            self._leave(account_id, turn)
            if isinstance(error, TimeoutError):
                raise self._refusal() from None
            raise

    def _is_free(self, account_id: AccountId) -> bool:
        return len(self._running) < self.at_once and account_id not in self._running | self._resting

    def _leave(self, account_id: AccountId, turn: asyncio.Future[None]) -> None:
        """Of one that waits no more; it may have its turn since a moment."""
        if turn.done() and not turn.cancelled():
            self._end(account_id, 0.0)
            return
        queue = self._waiting.get(account_id, deque())
        if turn in queue:
            queue.remove(turn)
        if not queue:
            self._waiting.pop(account_id, None)

    def _end(self, account_id: AccountId, took_s: float) -> None:
        self._running.discard(account_id)
        if self.rests and took_s >= RESTS_FROM_S:
            self._resting.add(account_id)
            asyncio.get_running_loop().call_later(min(took_s, MAX_REST_S), self._end_rest, account_id)
        self._give_turns()

    def _end_rest(self, account_id: AccountId) -> None:
        self._resting.discard(account_id)
        self._give_turns()

    def _give_turns(self) -> None:
        for account_id in [*self._waiting]:
            if not self._is_free(account_id):
                continue
            queue = self._waiting.pop(account_id)
            while queue and queue[0].done():  # it waits no more
                queue.popleft()
            if not queue:
                continue
            turn = queue.popleft()
            if queue:
                self._waiting[account_id] = queue  # behind the others
            self._running.add(account_id)
            turn.set_result(None)

    def _refusal(self) -> RateLimited:
        self.refused_count += 1
        refused = RateLimited(
            "Your account has too many requests for long work at once. Try again in a moment, and send one of them at a time.",
            retry_after=1,
        )
        refused.already_logged = True  # nothing was denied; a write for each would be more work
        return refused
