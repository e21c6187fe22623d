"""The SQL unit of work: one session, all repositories, and the dispatcher that writes domain events to the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from adapters.storage.sql.caller_recheck import checked_caller
from adapters.storage.sql.postgres.leader_fence import PostgresLeaderFence
from adapters.storage.sql.repositories.accounts_users_and_projects import (
    SqlAccountRepository,
    SqlMembershipRepository,
    SqlProjectRepository,
    SqlUserRepository,
)
from adapters.storage.sql.repositories.api_keys import SqlApiKeyRepository
from adapters.storage.sql.repositories.approvals import SqlApprovalRepository
from adapters.storage.sql.repositories.audit_log import SqlAuditLogRepository
from adapters.storage.sql.repositories.command_context import SqlCommandContextRepository
from adapters.storage.sql.repositories.command_definitions_and_executions import (
    SqlCommandDefinitionRepository,
    SqlCommandExecutionRepository,
)
from adapters.storage.sql.repositories.dead_letters import SqlIngestDeadLetterRepository
from adapters.storage.sql.repositories.device_connection_holders import SqlDeviceConnectionHolderRepository
from adapters.storage.sql.repositories.device_credentials import SqlDeviceCredentialsRepository
from adapters.storage.sql.repositories.device_groups import SqlDeviceGroupRepository
from adapters.storage.sql.repositories.device_health import SqlDeviceHealthRepository
from adapters.storage.sql.repositories.device_search import SqlDeviceSearchRepository
from adapters.storage.sql.repositories.device_types import SqlDeviceTypeRepository
from adapters.storage.sql.repositories.devices import SqlDeviceRepository
from adapters.storage.sql.repositories.due_rollups import SqlDueRollupRepository
from adapters.storage.sql.repositories.events import SqlEventRepository
from adapters.storage.sql.repositories.external_identities_and_used_sign_in_states import SqlExternalIdentityRepository
from adapters.storage.sql.repositories.grants import SqlGrantRepository
from adapters.storage.sql.repositories.invitations import SqlInvitationRepository
from adapters.storage.sql.repositories.login_tokens_and_failures import (
    SqlLoginFailureRepository,
    SqlPasswordChangeCodeRepository,
    SqlRefreshTokenRepository,
)
from adapters.storage.sql.repositories.notification_channels import SqlNotificationChannelRepository
from adapters.storage.sql.repositories.notification_settings_and_outbox import SqlNotificationOutboxRepository
from adapters.storage.sql.repositories.partition_engine_state import SqlPartitionEngineStateRepository
from adapters.storage.sql.repositories.partitions_and_members import SqlClusterMemberRepository, SqlPartitionOwnershipRepository
from adapters.storage.sql.repositories.passkeys import SqlPasskeyRepository
from adapters.storage.sql.repositories.persisted_steady_time import SqlSteadyTimeRepository
from adapters.storage.sql.repositories.provisioning_claims import SqlDeviceProvisioningClaimRepository
from adapters.storage.sql.repositories.provisioning_codes import SqlProvisioningCodeRepository
from adapters.storage.sql.repositories.range_partitions import SqlRangePartitionRepository
from adapters.storage.sql.repositories.reading_arrivals import SqlReadingArrivalRepository
from adapters.storage.sql.repositories.readings import SqlReadingRepository
from adapters.storage.sql.repositories.rollups import SqlRollupRepository
from adapters.storage.sql.repositories.rules import SqlRuleRepository
from adapters.storage.sql.repositories.schedules import SqlScheduleRepository
from adapters.storage.sql.repositories.second_factors import SqlSecondFactorRepository
from adapters.storage.sql.repositories.service_secrets import SqlServiceSecretRepository
from adapters.storage.sql.repositories.service_session_tokens import SqlServiceSessionTokenRepository
from adapters.storage.sql.repositories.stored_responses import SqlStoredResponseRepository
from adapters.storage.sql.repositories.unlock_links import SqlSignInUnlockLinkRepository
from adapters.storage.sql.repositories.user_sessions import SqlUserSessionRepository
from adapters.storage.sql.repositories.webhook_deliveries import SqlWebhookDeliveryRepository
from adapters.storage.sql.repositories.webhooks import SqlWebhookRepository
from adapters.storage.sql.sql_session_port import SqlSession
from adapters.storage.transaction_misuse_errors import ReadOnlyTransactionError
from domain.events.ports import TransactionEventDispatcher
from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller, check_stated_role
from domain.kernel.domain_event import DomainEvent
from domain.kernel.idempotency import IdempotentReplayRollbackError


class SqlBackend(Protocol):
    """SQLite or PostgreSQL: sessions in a transaction that commits, or in a read-only snapshot."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def check(self) -> None: ...

    def abort_connections(self) -> None: ...

    def write(self, *, background: bool = False) -> AbstractAsyncContextManager[SqlSession]: ...

    def read(self, *, one_statement: bool = False) -> AbstractAsyncContextManager[SqlSession]: ...


R_co = TypeVar("R_co", covariant=True)


class LazyRepository(Generic[R_co]):
    """Creates the repository at first use: a transaction uses about three of them."""

    def __init__(self, make: Callable[[SqlSession], R_co]) -> None:
        self._factory = make
        self._name = ""

    def __set_name__(self, owner: type[SqlTransaction], name: str) -> None:
        self._name = name

    def __get__(self, tx: SqlTransaction, owner: type[SqlTransaction]) -> R_co:
        made = tx.__dict__[self._name] = self._factory(tx.session)
        return made


class SqlTransaction:
    accounts = LazyRepository(SqlAccountRepository)
    users = LazyRepository(SqlUserRepository)
    memberships = LazyRepository(SqlMembershipRepository)
    invitations = LazyRepository(SqlInvitationRepository)
    projects = LazyRepository(SqlProjectRepository)
    user_sessions = LazyRepository(SqlUserSessionRepository)
    refresh_tokens = LazyRepository(SqlRefreshTokenRepository)
    one_time_codes = LazyRepository(SqlPasswordChangeCodeRepository)
    passkeys = LazyRepository(SqlPasskeyRepository)
    second_factors = LazyRepository(SqlSecondFactorRepository)
    external_identities = LazyRepository(SqlExternalIdentityRepository)
    service_sessions = LazyRepository(SqlServiceSessionTokenRepository)
    unlock_links = LazyRepository(SqlSignInUnlockLinkRepository)
    login_failures = LazyRepository(SqlLoginFailureRepository)
    stored_responses = LazyRepository(SqlStoredResponseRepository)
    api_keys = LazyRepository(SqlApiKeyRepository)
    devices = LazyRepository(SqlDeviceRepository)
    device_search = LazyRepository(SqlDeviceSearchRepository)
    credentials = LazyRepository(SqlDeviceCredentialsRepository)
    device_health = LazyRepository(SqlDeviceHealthRepository)
    provisioning_codes = LazyRepository(SqlProvisioningCodeRepository)
    device_claims = LazyRepository(SqlDeviceProvisioningClaimRepository)
    groups = LazyRepository(SqlDeviceGroupRepository)
    device_types = LazyRepository(SqlDeviceTypeRepository)
    events = LazyRepository(SqlEventRepository)
    audit_log = LazyRepository(SqlAuditLogRepository)
    grants = LazyRepository(SqlGrantRepository)
    approvals = LazyRepository(SqlApprovalRepository)
    definitions = LazyRepository(SqlCommandDefinitionRepository)
    executions = LazyRepository(SqlCommandExecutionRepository)
    command_contexts = LazyRepository(SqlCommandContextRepository)
    schedules = LazyRepository(SqlScheduleRepository)
    rules = LazyRepository(SqlRuleRepository)
    readings = LazyRepository(SqlReadingRepository)
    arrivals = LazyRepository(SqlReadingArrivalRepository)
    partition_states = LazyRepository(SqlPartitionEngineStateRepository)
    due_rollups = LazyRepository(SqlDueRollupRepository)
    rollups = LazyRepository(SqlRollupRepository)
    range_partitions = LazyRepository(SqlRangePartitionRepository)
    dead_letters = LazyRepository(SqlIngestDeadLetterRepository)
    notification_channels = LazyRepository(SqlNotificationChannelRepository)
    notifications = LazyRepository(SqlNotificationOutboxRepository)
    webhooks = LazyRepository(SqlWebhookRepository)
    deliveries = LazyRepository(SqlWebhookDeliveryRepository)
    service_secrets = LazyRepository(SqlServiceSecretRepository)
    steady_time = LazyRepository(SqlSteadyTimeRepository)
    partitions = LazyRepository(SqlPartitionOwnershipRepository)
    members = LazyRepository(SqlClusterMemberRepository)
    device_sessions = LazyRepository(SqlDeviceConnectionHolderRepository)

    def __init__(self, session: SqlSession, dispatcher: TransactionEventDispatcher[SqlTransaction] | None) -> None:
        self.session = session
        self._event_dispatcher = dispatcher
        self._pending_events: list[DomainEvent] = []

    async def emit(self, event: DomainEvent) -> None:
        if not self.session.writable:
            raise ReadOnlyTransactionError
        self._pending_events.append(event)

    async def flush_events(self) -> None:
        """Write all events at the end of the transaction: one round trip, and on PostgreSQL the transaction holds its writer
        number for the shortest time."""
        if self._event_dispatcher is not None and self._pending_events:
            await self._event_dispatcher.dispatch(self, self._pending_events)

    def after_commit(self, call: Callable[[], None]) -> None:
        self.session.after_commit(call)


class SqlUnitOfWork:
    """Without a dispatcher, events are dropped. With a fence, writing transactions hold it."""

    def __init__(
        self,
        backend: SqlBackend,
        dispatcher: TransactionEventDispatcher[SqlTransaction] | None = None,
        fence: PostgresLeaderFence | None = None,
    ) -> None:
        self._backend = backend
        self._event_dispatcher = dispatcher
        self._fence = fence

    def fenced_by(self, fence: PostgresLeaderFence) -> SqlUnitOfWork:
        return SqlUnitOfWork(self._backend, self._event_dispatcher, fence)

    @asynccontextmanager
    async def write(
        self,
        caller: SessionCaller | ApiKeyCaller | None = None,
        needs: Role = Role.OWNER,
        *,
        locks_account: bool = False,
        background: bool = False,
    ) -> AsyncIterator[SqlTransaction]:
        if caller is not None:
            check_stated_role(caller, needs)
        async with self._backend.write(background=background) as session:
            if self._fence is not None:
                await self._fence.hold(session)
            tx = SqlTransaction(session, self._event_dispatcher)
            if caller is None:
                yield tx
            else:
                if locks_account:
                    await tx.memberships.lock_account(caller.account_id)
                async with checked_caller(session, caller):
                    yield tx
                if caller.is_replay:
                    raise IdempotentReplayRollbackError
            if caller is not None and caller.claim is not None:
                await tx.stored_responses.mark_committed(caller.claim)
            await tx.flush_events()

    def read(self, *, one_statement: bool = False) -> SqlReadTransaction:
        return SqlReadTransaction(self._backend.read(one_statement=one_statement))


class SqlReadTransaction:
    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: AbstractAsyncContextManager[SqlSession]) -> None:
        self._snapshot = snapshot

    async def __aenter__(self) -> SqlTransaction:
        return SqlTransaction(await self._snapshot.__aenter__(), None)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._snapshot.__aexit__(kind, error, trace)
