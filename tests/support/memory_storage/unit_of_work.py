"""The in-memory unit of work: one writer at a time; readers keep the tables they began with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

from adapters.storage.errors import NestedWriteError, ReadOnlyTransactionError, run_callbacks
from domain.events.ports import TransactionEventDispatcher
from domain.kernel.caller import (
    ApiKeyCaller,
    Role,
    SessionCaller,
    check_current_role,
    check_key_state,
    check_session_is_open,
    check_stated_role,
)
from domain.kernel.domain_event import DomainEvent
from domain.kernel.errors import Unavailable
from domain.kernel.idempotency import IdempotentReplayRollbackError
from support.memory_storage.accounts import (
    MemoryAccountRepository,
    MemoryMembershipRepository,
    MemoryProjectRepository,
    MemoryUserRepository,
)
from support.memory_storage.approvals import MemoryApprovalRepository
from support.memory_storage.arrivals import MemoryArrivalRepository
from support.memory_storage.audit_log import MemoryAuditLogRepository
from support.memory_storage.cluster import (
    MemoryClusterMemberRepository,
    MemoryDeviceConnectionRepository,
    MemoryPartitionOwnershipRepository,
)
from support.memory_storage.command_context import MemoryCommandContextRepository
from support.memory_storage.commands import MemoryCommandDefinitionRepository, MemoryExecutionRepository
from support.memory_storage.dead_letters import MemoryIngestDeadLetterRepository
from support.memory_storage.device_health import MemoryDeviceHealthRepository
from support.memory_storage.device_search import MemoryDeviceSearchRepository
from support.memory_storage.devices import MemoryDeviceCredentialsRepository, MemoryDeviceRepository, MemoryDeviceTypeRepository
from support.memory_storage.events import MemoryEventRepository
from support.memory_storage.external_identities import MemoryExternalIdentityRepository
from support.memory_storage.grants import MemoryGrantRepository
from support.memory_storage.groups import MemoryDeviceGroupRepository
from support.memory_storage.invitations import MemoryInvitationRepository
from support.memory_storage.keys import MemoryApiKeyRepository
from support.memory_storage.life import MemoryLifeRepository
from support.memory_storage.notifications import (
    MemoryNotificationChannelRepository,
    MemoryNotificationOutboxRepository,
    MemoryServiceSecretRepository,
)
from support.memory_storage.partition_states import MemoryPartitionStateRepository
from support.memory_storage.passkeys import MemoryPasskeyRepository
from support.memory_storage.provisioning import MemoryProvisioningClaimRepository, MemoryProvisioningCodeRepository
from support.memory_storage.rollups import MemoryDueRollupRepository, MemoryRangePartitionRepository, MemoryRollupRepository
from support.memory_storage.rules import MemoryRuleRepository
from support.memory_storage.schedules import MemoryScheduleRepository
from support.memory_storage.second_factors import MemorySecondFactorRepository
from support.memory_storage.service_sessions import MemoryServiceSessionRepository
from support.memory_storage.sessions import (
    MemoryLoginFailureRepository,
    MemoryOneTimeCodeRepository,
    MemoryRefreshTokenRepository,
    MemorySignInUnlockLinkRepository,
    MemoryStoredResponseRepository,
)
from support.memory_storage.steady_time import MemorySteadyTimeRepository
from support.memory_storage.tables import Database, Tables
from support.memory_storage.telemetry import MemoryReadingRepository
from support.memory_storage.user_sessions import MemoryUserSessionRepository
from support.memory_storage.webhooks import MemoryDeliveryRepository, MemoryWebhookRecoveryRepository, MemoryWebhookRepository
from support.waiting import TIMEOUT_S


class MemoryTransaction:
    def __init__(
        self, database: Database, dispatcher: TransactionEventDispatcher[MemoryTransaction] | None, *, writable: bool
    ) -> None:
        self._event_dispatcher = dispatcher
        self._writable = writable
        self.emitted_events: list[DomainEvent] = []
        self.after_commit_calls: list[Callable[[], None]] = []
        self.accounts = MemoryAccountRepository(database)
        self.users = MemoryUserRepository(database)
        self.memberships = MemoryMembershipRepository(database)
        self.invitations = MemoryInvitationRepository(database)
        self.projects = MemoryProjectRepository(database)
        self.refresh_tokens = MemoryRefreshTokenRepository(database)
        self.user_sessions = MemoryUserSessionRepository(database)
        self.one_time_codes = MemoryOneTimeCodeRepository(database)
        self.passkeys = MemoryPasskeyRepository(database)
        self.second_factors = MemorySecondFactorRepository(database)
        self.external_identities = MemoryExternalIdentityRepository(database)
        self.service_sessions = MemoryServiceSessionRepository(database)
        self.unlock_links = MemorySignInUnlockLinkRepository(database)
        self.login_failures = MemoryLoginFailureRepository(database)
        self.stored_responses = MemoryStoredResponseRepository(database)
        self.api_keys = MemoryApiKeyRepository(database)
        self.devices = MemoryDeviceRepository(database)
        self.device_search = MemoryDeviceSearchRepository(self.devices, database)
        self.credentials = MemoryDeviceCredentialsRepository(database)
        self.device_health = MemoryDeviceHealthRepository(database)
        self.provisioning_codes = MemoryProvisioningCodeRepository(database)
        self.device_claims = MemoryProvisioningClaimRepository(database)
        self.groups = MemoryDeviceGroupRepository(database)
        self.device_types = MemoryDeviceTypeRepository(database)
        self.events = MemoryEventRepository(database)
        self.audit_log = MemoryAuditLogRepository(database)
        self.grants = MemoryGrantRepository(database)
        self.approvals = MemoryApprovalRepository(database)
        self.definitions = MemoryCommandDefinitionRepository(database)
        self.executions = MemoryExecutionRepository(database)
        self.command_contexts = MemoryCommandContextRepository(self.devices, self.definitions, self.executions, self.grants)
        self.schedules = MemoryScheduleRepository(database)
        self.rules = MemoryRuleRepository(database)
        self.readings = MemoryReadingRepository(database)
        self.arrivals = MemoryArrivalRepository(database)
        self.partition_states = MemoryPartitionStateRepository(database)
        self.dead_letters = MemoryIngestDeadLetterRepository(database)
        self.due_rollups = MemoryDueRollupRepository(database)
        self.rollups = MemoryRollupRepository(database)
        self.notification_channels = MemoryNotificationChannelRepository(database)
        self.range_partitions = MemoryRangePartitionRepository(database)
        self.notifications = MemoryNotificationOutboxRepository(database)
        self.service_secrets = MemoryServiceSecretRepository(database)
        self.webhooks = MemoryWebhookRepository(database)
        self.deliveries = MemoryDeliveryRepository(database)
        self.recoveries = MemoryWebhookRecoveryRepository(database)
        self.steady_time = MemorySteadyTimeRepository(database)
        self.life = MemoryLifeRepository(database)
        self.partitions = MemoryPartitionOwnershipRepository(database)
        self.members = MemoryClusterMemberRepository(database)
        self.device_sessions = MemoryDeviceConnectionRepository(database)

    def emit(self, event: DomainEvent) -> None:
        if not self._writable:
            raise ReadOnlyTransactionError
        self.emitted_events.append(event)

    async def flush_events(self) -> None:
        if self._event_dispatcher is not None and self.emitted_events:
            await self._event_dispatcher.dispatch(self, self.emitted_events)

    def after_commit(self, call: Callable[[], None]) -> None:
        if not self._writable:
            raise ReadOnlyTransactionError
        self.after_commit_calls.append(call)


_READ_WITH: ContextVar[MemoryTransaction | None] = ContextVar("read_with", default=None)


class MemoryUnitOfWork:
    """Without a dispatcher, `emitted_events` keeps the events. `acquire_timeout_s` limits the wait for other writers."""

    def __init__(
        self, dispatcher: TransactionEventDispatcher[MemoryTransaction] | None = None, *, acquire_timeout_s: float = TIMEOUT_S
    ) -> None:
        self.emitted_events: list[DomainEvent] = []
        self._event_dispatcher = dispatcher
        self._acquire_timeout_s = acquire_timeout_s
        self._tables: Tables = {}
        self._write_lock = asyncio.Lock()
        self._writer: asyncio.Task[object] | None = None

    @asynccontextmanager
    async def write(
        self,
        caller: SessionCaller | ApiKeyCaller | None = None,
        needs: Role = Role.OWNER,
        *,
        locks_account: bool = False,
        background: bool = False,
    ) -> AsyncIterator[MemoryTransaction]:
        if caller is not None:
            check_stated_role(caller, needs)
        await self._acquire_write_lock()
        try:
            database = Database(self._tables, writable=True)
            tx = MemoryTransaction(database, self._event_dispatcher, writable=True)
            try:
                if caller is not None:
                    await _check_caller(tx, caller)
                    if caller.precondition is not None:
                        token = _READ_WITH.set(tx)
                        try:
                            await caller.precondition()
                        finally:
                            _READ_WITH.reset(token)
                yield tx
                if caller is not None and caller.is_replay:
                    raise IdempotentReplayRollbackError
                if caller is not None and caller.claim is not None:
                    await tx.stored_responses.mark_committed(caller.claim)
                await tx.flush_events()
            finally:
                database.close()
            self._tables = database.tables
            self.emitted_events += tx.emitted_events
        finally:
            self._writer = None
            self._write_lock.release()
        run_callbacks(tx.after_commit_calls)

    @asynccontextmanager
    async def rehearse(self, caller: SessionCaller | ApiKeyCaller, needs: Role) -> AsyncIterator[MemoryTransaction]:
        check_stated_role(caller, needs)
        database = Database(self._tables, writable=True)
        try:
            tx = MemoryTransaction(database, self._event_dispatcher, writable=True)
            await _check_caller(tx, caller)
            yield tx
        finally:
            database.close()

    @asynccontextmanager
    async def read(self, *, one_statement: bool = False) -> AsyncIterator[MemoryTransaction]:
        joined = _READ_WITH.get()
        if joined is not None:
            yield joined
            return
        database = Database(self._tables, writable=False)
        try:
            yield MemoryTransaction(database, self._event_dispatcher, writable=False)
        finally:
            database.close()

    async def _acquire_write_lock(self) -> None:
        if self._writer is not None and self._writer is asyncio.current_task():
            raise NestedWriteError
        try:
            async with asyncio.timeout(self._acquire_timeout_s):
                await self._write_lock.acquire()
        except TimeoutError:
            raise Unavailable("Another writer holds the storage for too long. Try again in a moment.") from None
        self._writer = asyncio.current_task()


async def _check_caller(tx: MemoryTransaction, caller: SessionCaller | ApiKeyCaller) -> None:
    if isinstance(caller, SessionCaller):
        membership = await tx.memberships.get(caller.membership_id)
        session = None if caller.session_id is None else await tx.user_sessions.get(caller.session_id)
        if session is not None:
            check_session_is_open(session.revoked_ms)
        check_current_role(caller, None if membership is None else membership.role)
    else:
        key = await tx.api_keys.get(caller.account_id, caller.key_id)
        if key is None:
            check_key_state(caller, None, (), ())
        else:
            check_key_state(caller, key.enabled, (key.secret_hash, key.previous_hash), key.allowed_networks)
