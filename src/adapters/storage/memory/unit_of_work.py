"""The unit of work over dictionaries: writers one after the other, readers on the dictionaries as they were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from adapters.storage.after_commit import run_all
from adapters.storage.memory.accounts import MemoryAccounts, MemoryMemberships, MemoryProjects, MemoryUsers
from adapters.storage.memory.approvals import MemoryApprovals
from adapters.storage.memory.commands import MemoryDefinitions, MemoryExecutions
from adapters.storage.memory.devices import MemoryCredentials, MemoryDevices, MemoryDeviceTypes
from adapters.storage.memory.events import MemoryEvents
from adapters.storage.memory.facing import MemoryFacing
from adapters.storage.memory.grants import MemoryGrants
from adapters.storage.memory.keys import MemoryKeys
from adapters.storage.memory.rollups import MemoryRollups
from adapters.storage.memory.rules import MemoryRules
from adapters.storage.memory.schedules import MemorySchedules
from adapters.storage.memory.sessions import (
    MemoryAnswers,
    MemoryLoginFailures,
    MemoryOneTimeCodes,
    MemoryRefreshTokens,
)
from adapters.storage.memory.shelves import Book, Pages
from adapters.storage.memory.telemetry import MemoryReadings
from adapters.storage.memory.webhooks import MemoryDeliveries, MemoryWebhooks
from adapters.storage.refusals import NestedWrite, ReadOnly
from domain.events.ports import Recorder
from domain.kernel.errors import Unavailable
from domain.kernel.facts import Fact
from domain.kernel.idempotency import CLAIMED


class MemoryTransaction:
    def __init__(self, book: Book, recorder: Recorder | None, *, writable: bool) -> None:
        self._recorder = recorder
        self._writable = writable
        self.facts: list[Fact] = []
        self.calls: list[Callable[[], None]] = []
        self.accounts = MemoryAccounts(book)
        self.users = MemoryUsers(book)
        self.memberships = MemoryMemberships(book)
        self.projects = MemoryProjects(book)
        self.refresh_tokens = MemoryRefreshTokens(book)
        self.one_time_codes = MemoryOneTimeCodes(book)
        self.login_failures = MemoryLoginFailures(book)
        self.answers = MemoryAnswers(book)
        self.keys = MemoryKeys(book)
        self.devices = MemoryDevices(book)
        self.credentials = MemoryCredentials(book)
        self.device_types = MemoryDeviceTypes(book)
        self.events = MemoryEvents(book)
        self.grants = MemoryGrants(book)
        self.approvals = MemoryApprovals(book)
        self.definitions = MemoryDefinitions(book)
        self.executions = MemoryExecutions(book)
        self.facing = MemoryFacing(self.devices, self.definitions, self.executions, self.grants)
        self.schedules = MemorySchedules(book)
        self.rules = MemoryRules(book)
        self.readings = MemoryReadings(book)
        self.rollups = MemoryRollups(book)
        self.webhooks = MemoryWebhooks(book)
        self.deliveries = MemoryDeliveries(book)

    async def record(self, fact: Fact) -> None:
        if not self._writable:
            raise ReadOnly
        self.facts.append(fact)

    async def settle(self) -> None:
        claim = CLAIMED.get()
        if claim is not None:
            await self.answers.carry_out(claim)
        if self._recorder is not None and self.facts:
            await self._recorder.record(self, self.facts)

    def after_commit(self, call: Callable[[], None]) -> None:
        if not self._writable:
            raise ReadOnly
        self.calls.append(call)


class MemoryUnitOfWork:
    """Without a recorder, facts are kept in `facts` and go nowhere else. `patience_s` bounds the wait for other writers."""

    def __init__(self, recorder: Recorder | None = None, *, patience_s: float = 5.0) -> None:
        self.facts: list[Fact] = []
        self._recorder = recorder
        self._patience_s = patience_s
        self._pages: Pages = {}
        self._turn = asyncio.Lock()
        self._writer: asyncio.Task[object] | None = None

    @asynccontextmanager
    async def write(self) -> AsyncIterator[MemoryTransaction]:
        await self._take_turn()
        try:
            book = Book(self._pages, writable=True)
            tx = MemoryTransaction(book, self._recorder, writable=True)
            try:
                yield tx
                await tx.settle()
            finally:
                book.close()
            self._pages = book.pages
            self.facts += tx.facts
        finally:
            self._writer = None
            self._turn.release()
        run_all(tx.calls)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[MemoryTransaction]:
        book = Book(self._pages, writable=False)
        try:
            yield MemoryTransaction(book, self._recorder, writable=False)
        finally:
            book.close()

    async def _take_turn(self) -> None:
        if self._writer is not None and self._writer is asyncio.current_task():
            raise NestedWrite
        try:
            async with asyncio.timeout(self._patience_s):
                await self._turn.acquire()
        except TimeoutError:
            raise Unavailable("Another writer holds the storage for too long. Try again in a moment.") from None
        self._writer = asyncio.current_task()
