"""The SQL unit of work: one session, all repositories, and the dispatcher that writes domain events to the log.

Reads the caller of a writing transaction again: its session and the role of its membership, or the state of its key.

One row by its unique index. PostgreSQL locks it until the transaction ends: a membership and a session FOR SHARE, because a new
role and the end of a session are ordinary updates; a key FOR KEY SHARE, because the time of its last use is written every few
seconds and must not wait for commands (whoever disables a key locks it FOR UPDATE). SQLite has one writer, so nothing changes
before the commit; there the read goes along with the first statement of the transaction and costs no thread hop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import Select, bindparam, select

from adapters.storage.errors import ReadOnlyTransactionError
from adapters.storage.sql.mapping import from_json
from adapters.storage.sql.postgres.leader_fence import PostgresLeaderFence
from adapters.storage.sql.repositories.accounts import (
    SqlAccountRepository,
    SqlInvitationRepository,
    SqlMembershipRepository,
    SqlProjectRepository,
    SqlUserRepository,
)
from adapters.storage.sql.repositories.api_keys import (
    SqlApiKeyRepository,
    SqlServiceSecretRepository,
    SqlServiceSessionTokenRepository,
)
from adapters.storage.sql.repositories.audit_log import SqlAuditLogRepository
from adapters.storage.sql.repositories.cluster import (
    SqlClusterMemberRepository,
    SqlPartitionOwnershipRepository,
    SqlSteadyTimeRepository,
)
from adapters.storage.sql.repositories.commands import (
    SqlApprovalRepository,
    SqlCommandContextRepository,
    SqlCommandDefinitionRepository,
    SqlCommandExecutionRepository,
)
from adapters.storage.sql.repositories.device_state import (
    SqlDeviceConnectionHolderRepository,
    SqlDeviceCredentialsRepository,
    SqlDeviceHealthRepository,
    SqlIngestDeadLetterRepository,
)
from adapters.storage.sql.repositories.devices import (
    SqlDeviceGroupRepository,
    SqlDeviceRepository,
    SqlDeviceSearchRepository,
    SqlDeviceTypeRepository,
)
from adapters.storage.sql.repositories.events import SqlEventRepository
from adapters.storage.sql.repositories.grants import SqlGrantRepository
from adapters.storage.sql.repositories.life import SqlLifeRepository
from adapters.storage.sql.repositories.notifications import SqlNotificationChannelRepository, SqlNotificationOutboxRepository
from adapters.storage.sql.repositories.provisioning import SqlDeviceProvisioningClaimRepository, SqlProvisioningCodeRepository
from adapters.storage.sql.repositories.rollups import SqlDueRollupRepository, SqlRangePartitionRepository, SqlRollupRepository
from adapters.storage.sql.repositories.rules import SqlPartitionEngineStateRepository, SqlRuleRepository
from adapters.storage.sql.repositories.schedules import SqlScheduleRepository
from adapters.storage.sql.repositories.sign_in import (
    SqlExternalIdentityRepository,
    SqlLoginFailureRepository,
    SqlPasskeyRepository,
    SqlPasswordChangeCodeRepository,
    SqlRefreshTokenRepository,
    SqlSecondFactorRepository,
    SqlSignInUnlockLinkRepository,
    SqlUserSessionRepository,
)
from adapters.storage.sql.repositories.stored_responses import SqlStoredResponseRepository
from adapters.storage.sql.repositories.telemetry import SqlReadingArrivalRepository, SqlReadingRepository
from adapters.storage.sql.repositories.webhook_deliveries import SqlWebhookDeliveryRepository, SqlWebhookRecoveryRepository
from adapters.storage.sql.repositories.webhooks import SqlWebhookRepository
from adapters.storage.sql.session import POSTGRES, Row, SqlSession
from adapters.storage.sql.tables import api_keys, memberships, user_sessions
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
from domain.kernel.errors import DomainError, Unavailable
from domain.kernel.idempotency import IdempotentReplayRollbackError

READ_ROLE = select(memberships.c.role).where(memberships.c.membership_id == bindparam("at_id")).with_for_update(read=True)
READ_SESSION = (
    select(memberships.c.role, user_sessions.c.revoked_ms)
    .join(user_sessions, user_sessions.c.membership_id == memberships.c.membership_id)
    .where(user_sessions.c.session_id == bindparam("at_id"))
    .with_for_update(read=True)
)
_k = api_keys.c
READ_KEY_STATE = (
    select(_k.enabled, _k.secret_hash, _k.previous_hash, _k.allowed_networks)
    .where(_k.key_id == bindparam("at_id"))
    .with_for_update(read=True, key_share=True)
)


@asynccontextmanager
async def checked_caller(session: SqlSession, caller: SessionCaller | ApiKeyCaller) -> AsyncIterator[None]:
    """Around the body of the transaction. Raises Unauthenticated or PermissionDenied when the caller has lost its authority, also
    in place of another error of the body: who has lost it learns nothing more."""
    statement, found_by = _statement_for(caller)
    read = await session.begin_read(statement, at_id=found_by)
    if session.dialect == POSTGRES:
        _check(caller, await read.rows())
        yield
        return
    try:
        yield
    except Unavailable:
        raise
    except DomainError:
        _check(caller, await read.rows())
        raise
    _check(caller, await read.rows())


def _statement_for(caller: SessionCaller | ApiKeyCaller) -> tuple[Select[Any], str]:
    if isinstance(caller, ApiKeyCaller):
        return READ_KEY_STATE, caller.key_id
    return (READ_ROLE, caller.membership_id) if caller.session_id is None else (READ_SESSION, caller.session_id)


def _check(caller: SessionCaller | ApiKeyCaller, rows: Sequence[Row]) -> None:
    if isinstance(caller, SessionCaller):
        if caller.session_id is not None and rows:
            check_session_is_open(rows[0][1])
        check_current_role(caller, Role(rows[0][0]) if rows else None)
    else:
        enabled, present, previous, networks = rows[0] if rows else (None, None, None, "[]")
        check_key_state(caller, None if enabled is None else bool(enabled), (present, previous), tuple(from_json(networks)))


class SqlBackend(Protocol):
    """SQLite or PostgreSQL: sessions in a transaction that commits, or in a read-only snapshot."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def check(self) -> None: ...

    def abort_connections(self) -> None: ...

    def write(self, account: str = "", *, background: bool = False) -> AbstractAsyncContextManager[SqlSession]:
        """`account`: whose request it is; empty for the service itself."""

    def rehearse(self, account: str) -> AbstractAsyncContextManager[SqlSession]:
        """A transaction whose changes are undone."""

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
    recoveries = LazyRepository(SqlWebhookRecoveryRepository)
    service_secrets = LazyRepository(SqlServiceSecretRepository)
    steady_time = LazyRepository(SqlSteadyTimeRepository)
    life = LazyRepository(SqlLifeRepository)
    partitions = LazyRepository(SqlPartitionOwnershipRepository)
    members = LazyRepository(SqlClusterMemberRepository)
    device_sessions = LazyRepository(SqlDeviceConnectionHolderRepository)

    def __init__(self, session: SqlSession, dispatcher: TransactionEventDispatcher[SqlTransaction] | None) -> None:
        self.session = session
        self._event_dispatcher = dispatcher
        self._pending_events: list[DomainEvent] = []

    def emit(self, event: DomainEvent) -> None:
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


_READ_WITH: ContextVar[SqlTransaction | None] = ContextVar("read_with", default=None)
"""The transaction whose precondition is being checked: it is what the check reads."""


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
        account = "" if caller is None else caller.account_id
        async with self._backend.write(account, background=background) as session:
            if self._fence is not None:
                await self._fence.hold(session)
            tx = SqlTransaction(session, self._event_dispatcher)
            if caller is None:
                yield tx
            else:
                if locks_account:
                    await tx.memberships.lock_account(caller.account_id)
                async with checked_caller(session, caller):
                    if caller.precondition is not None:
                        await self._check_precondition(tx, caller.precondition)
                    yield tx
                if caller.is_replay:
                    raise IdempotentReplayRollbackError
            if caller is not None and caller.claim is not None:
                await tx.stored_responses.mark_committed(caller.claim)
            await tx.flush_events()

    @asynccontextmanager
    async def rehearse(self, caller: SessionCaller | ApiKeyCaller, needs: Role) -> AsyncIterator[SqlTransaction]:
        check_stated_role(caller, needs)
        async with self._backend.rehearse(caller.account_id) as session:
            tx = SqlTransaction(session, None)
            await tx.memberships.lock_account(caller.account_id)
            async with checked_caller(session, caller):
                yield tx

    async def _check_precondition(self, tx: SqlTransaction, precondition: Callable[[], Awaitable[None]]) -> None:
        token = _READ_WITH.set(tx)
        tx.session.locks_reads = True
        try:
            await precondition()
        finally:
            tx.session.locks_reads = False
            _READ_WITH.reset(token)

    def read(self, *, one_statement: bool = False) -> AbstractAsyncContextManager[SqlTransaction]:
        joined = _READ_WITH.get()
        if joined is not None:
            return nullcontext(joined)
        return SqlReadTransaction(self._backend.read(one_statement=one_statement))


class SqlReadTransaction:
    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: AbstractAsyncContextManager[SqlSession]) -> None:
        self._snapshot = snapshot

    async def __aenter__(self) -> SqlTransaction:
        return SqlTransaction(await self._snapshot.__aenter__(), None)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._snapshot.__aexit__(kind, error, trace)
