"""The unit of work over a database: one session, all repositories, and the recorder that writes facts to the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, Protocol, TypeVar

from adapters.storage.refusals import ReadOnly
from adapters.storage.sql.repositories.accounts import SqlAccounts, SqlMemberships, SqlProjects, SqlUsers
from adapters.storage.sql.repositories.approvals import SqlApprovals
from adapters.storage.sql.repositories.commands import SqlDefinitions, SqlExecutions
from adapters.storage.sql.repositories.deliveries import SqlDeliveries
from adapters.storage.sql.repositories.device_types import SqlDeviceTypes
from adapters.storage.sql.repositories.devices import SqlCredentials, SqlDevices
from adapters.storage.sql.repositories.events import SqlEvents
from adapters.storage.sql.repositories.facing import SqlFacing
from adapters.storage.sql.repositories.grants import SqlGrants
from adapters.storage.sql.repositories.keys import SqlKeys
from adapters.storage.sql.repositories.rollups import SqlRollups
from adapters.storage.sql.repositories.rules import SqlRules
from adapters.storage.sql.repositories.schedules import SqlSchedules
from adapters.storage.sql.repositories.sessions import (
    SqlAnswers,
    SqlLoginFailures,
    SqlOneTimeCodes,
    SqlRefreshTokens,
)
from adapters.storage.sql.repositories.telemetry import SqlReadings
from adapters.storage.sql.repositories.webhooks import SqlWebhooks
from adapters.storage.sql.session import Session
from domain.events.ports import Recorder
from domain.kernel.facts import Fact
from domain.kernel.idempotency import CLAIMED


class Backend(Protocol):
    """SQLite or PostgreSQL: sessions inside a transaction that commits, or inside a snapshot that only reads."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def check(self) -> None: ...

    def write(self) -> AbstractAsyncContextManager[Session]: ...

    def read(self) -> AbstractAsyncContextManager[Session]: ...


R_co = TypeVar("R_co", covariant=True)


class Lazy(Generic[R_co]):
    """A repository that is made when first asked for: a transaction uses three of the twenty-three."""

    def __init__(self, make: Callable[[Session], R_co]) -> None:
        self._make = make
        self._name = ""

    def __set_name__(self, owner: type[SqlTransaction], name: str) -> None:
        self._name = name

    def __get__(self, tx: SqlTransaction, owner: type[SqlTransaction]) -> R_co:
        made = tx.__dict__[self._name] = self._make(tx.session)
        return made


class SqlTransaction:
    accounts = Lazy(SqlAccounts)
    users = Lazy(SqlUsers)
    memberships = Lazy(SqlMemberships)
    projects = Lazy(SqlProjects)
    refresh_tokens = Lazy(SqlRefreshTokens)
    one_time_codes = Lazy(SqlOneTimeCodes)
    login_failures = Lazy(SqlLoginFailures)
    answers = Lazy(SqlAnswers)
    keys = Lazy(SqlKeys)
    devices = Lazy(SqlDevices)
    credentials = Lazy(SqlCredentials)
    device_types = Lazy(SqlDeviceTypes)
    events = Lazy(SqlEvents)
    grants = Lazy(SqlGrants)
    approvals = Lazy(SqlApprovals)
    definitions = Lazy(SqlDefinitions)
    executions = Lazy(SqlExecutions)
    facing = Lazy(SqlFacing)
    schedules = Lazy(SqlSchedules)
    rules = Lazy(SqlRules)
    readings = Lazy(SqlReadings)
    rollups = Lazy(SqlRollups)
    webhooks = Lazy(SqlWebhooks)
    deliveries = Lazy(SqlDeliveries)

    def __init__(self, session: Session, recorder: Recorder | None) -> None:
        self.session = session
        self._recorder = recorder
        self._facts: list[Fact] = []

    async def record(self, fact: Fact) -> None:
        if not self.session.writable:
            raise ReadOnly
        self._facts.append(fact)

    async def settle(self) -> None:
        """The facts go to the log together, last of all: one hop to the database, and on PostgreSQL the log's lock is held for
        the shortest time."""
        claim = CLAIMED.get()
        if claim is not None:
            await self.answers.carry_out(claim)
        if self._recorder is not None and self._facts:
            await self._recorder.record(self, self._facts)

    def after_commit(self, call: Callable[[], None]) -> None:
        self.session.after_commit(call)


class SqlUnitOfWork:
    """Without a recorder, facts go nowhere."""

    def __init__(self, backend: Backend, recorder: Recorder | None = None) -> None:
        self._backend = backend
        self._recorder = recorder

    @asynccontextmanager
    async def write(self) -> AsyncIterator[SqlTransaction]:
        async with self._backend.write() as session:
            tx = SqlTransaction(session, self._recorder)
            yield tx
            await tx.settle()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[SqlTransaction]:
        async with self._backend.read() as session:
            yield SqlTransaction(session, self._recorder)
