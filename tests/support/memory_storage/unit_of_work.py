"""The unit of work over dictionaries: writers one after the other, readers on the dictionaries as they were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from adapters.storage.after_commit import run_callbacks
from adapters.storage.errors import NestedWriteError, ReadOnlyTransactionError
from domain.events.ports import DomainEventDispatcher
from domain.kernel.caller import ApiKeyCaller, Session
from domain.kernel.domain_events import DomainEvent
from domain.kernel.errors import Unavailable
from support.memory_storage.accounts import (
    MemoryAccountRepository,
    MemoryMembershipRepository,
    MemoryProjectRepository,
    MemoryUserRepository,
)
from support.memory_storage.approvals import MemoryApprovalRepository
from support.memory_storage.command_context import MemoryCommandContextRepository
from support.memory_storage.commands import MemoryCommandDefinitionRepository, MemoryExecutionRepository
from support.memory_storage.devices import MemoryDeviceCredentialsRepository, MemoryDeviceRepository, MemoryDeviceTypeRepository
from support.memory_storage.events import MemoryEventRepository
from support.memory_storage.grants import MemoryGrantRepository
from support.memory_storage.keys import MemoryApiKeyRepository
from support.memory_storage.rollups import MemoryRollupRepository
from support.memory_storage.rules import MemoryRuleRepository
from support.memory_storage.schedules import MemoryScheduleRepository
from support.memory_storage.sessions import (
    MemoryLoginFailureRepository,
    MemoryOneTimeCodeRepository,
    MemoryRefreshTokenRepository,
    MemoryStoredResponseRepository,
)
from support.memory_storage.tables import Database, Tables
from support.memory_storage.telemetry import MemoryReadingRepository
from support.memory_storage.webhooks import MemoryDeliveryRepository, MemoryWebhookRepository


class MemoryTransaction:
    def __init__(self, book: Database, recorder: DomainEventDispatcher[MemoryTransaction] | None, *, writable: bool) -> None:
        self._event_dispatcher = recorder
        self._writable = writable
        self.emitted_events: list[DomainEvent] = []
        self.after_commit_calls: list[Callable[[], None]] = []
        self.accounts = MemoryAccountRepository(book)
        self.users = MemoryUserRepository(book)
        self.memberships = MemoryMembershipRepository(book)
        self.projects = MemoryProjectRepository(book)
        self.refresh_tokens = MemoryRefreshTokenRepository(book)
        self.one_time_codes = MemoryOneTimeCodeRepository(book)
        self.login_failures = MemoryLoginFailureRepository(book)
        self.stored_responses = MemoryStoredResponseRepository(book)
        self.api_keys = MemoryApiKeyRepository(book)
        self.devices = MemoryDeviceRepository(book)
        self.credentials = MemoryDeviceCredentialsRepository(book)
        self.device_types = MemoryDeviceTypeRepository(book)
        self.events = MemoryEventRepository(book)
        self.grants = MemoryGrantRepository(book)
        self.approvals = MemoryApprovalRepository(book)
        self.definitions = MemoryCommandDefinitionRepository(book)
        self.executions = MemoryExecutionRepository(book)
        self.command_contexts = MemoryCommandContextRepository(self.devices, self.definitions, self.executions, self.grants)
        self.schedules = MemoryScheduleRepository(book)
        self.rules = MemoryRuleRepository(book)
        self.readings = MemoryReadingRepository(book)
        self.rollups = MemoryRollupRepository(book)
        self.webhooks = MemoryWebhookRepository(book)
        self.deliveries = MemoryDeliveryRepository(book)

    async def emit(self, fact: DomainEvent) -> None:
        if not self._writable:
            raise ReadOnlyTransactionError
        self.emitted_events.append(fact)

    async def flush_events(self) -> None:
        if self._event_dispatcher is not None and self.emitted_events:
            await self._event_dispatcher.dispatch(self, self.emitted_events)

    def after_commit(self, call: Callable[[], None]) -> None:
        if not self._writable:
            raise ReadOnlyTransactionError
        self.after_commit_calls.append(call)


class MemoryUnitOfWork:
    """Without a recorder, facts are kept in `facts` and go nowhere else. `patience_s` bounds the wait for other writers."""

    def __init__(self, recorder: DomainEventDispatcher[MemoryTransaction] | None = None, *, patience_s: float = 5.0) -> None:
        self.emitted_events: list[DomainEvent] = []
        self._event_dispatcher = recorder
        self._acquire_timeout_s = patience_s
        self._tables: Tables = {}
        self._write_lock = asyncio.Lock()
        self._writer: asyncio.Task[object] | None = None

    @asynccontextmanager
    async def write(self, caller: Session | ApiKeyCaller | None = None) -> AsyncIterator[MemoryTransaction]:
        await self._acquire_write_lock()
        try:
            book = Database(self._tables, writable=True)
            tx = MemoryTransaction(book, self._event_dispatcher, writable=True)
            try:
                yield tx
                if caller is not None and caller.claim is not None:
                    await tx.stored_responses.mark_committed(caller.claim)
                await tx.flush_events()
            finally:
                book.close()
            self._tables = book.tables
            self.emitted_events += tx.emitted_events
        finally:
            self._writer = None
            self._write_lock.release()
        run_callbacks(tx.after_commit_calls)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[MemoryTransaction]:
        book = Database(self._tables, writable=False)
        try:
            yield MemoryTransaction(book, self._event_dispatcher, writable=False)
        finally:
            book.close()

    async def _acquire_write_lock(self) -> None:
        if self._writer is not None and self._writer is asyncio.current_task():
            raise NestedWriteError
        try:
            async with asyncio.timeout(self._acquire_timeout_s):
                await self._write_lock.acquire()
        except TimeoutError:
            raise Unavailable("Another writer holds the storage for too long. Try again in a moment.") from None
        self._writer = asyncio.current_task()
