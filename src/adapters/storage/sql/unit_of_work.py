"""The unit of work over a database: one session, all repositories, and the recorder that writes facts to the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from adapters.storage.refusals import ReadOnly
from adapters.storage.sql.repositories.accounts import SqlAccounts, SqlMemberships, SqlProjects, SqlUsers
from adapters.storage.sql.repositories.approvals import SqlApprovals
from adapters.storage.sql.repositories.commands import SqlDefinitions, SqlExecutions
from adapters.storage.sql.repositories.devices import SqlCredentials, SqlDevices, SqlDeviceTypes
from adapters.storage.sql.repositories.events import SqlEvents
from adapters.storage.sql.repositories.grants import SqlGrants
from adapters.storage.sql.repositories.keys import SqlKeys
from adapters.storage.sql.repositories.rules import SqlRules
from adapters.storage.sql.repositories.schedules import SqlSchedules
from adapters.storage.sql.repositories.sessions import (
    SqlAnswers,
    SqlLoginFailures,
    SqlOneTimeCodes,
    SqlRefreshTokens,
)
from adapters.storage.sql.repositories.telemetry import SqlReadings
from adapters.storage.sql.repositories.webhooks import SqlDeliveries, SqlWebhooks
from adapters.storage.sql.session import Session
from domain.events.ports import Recorder
from domain.kernel.facts import Fact


class Backend(Protocol):
    """SQLite or PostgreSQL: sessions inside a transaction that commits, or inside a snapshot that only reads."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def check(self) -> None: ...

    def write(self) -> AbstractAsyncContextManager[Session]: ...

    def read(self) -> AbstractAsyncContextManager[Session]: ...


class SqlTransaction:
    def __init__(self, session: Session, recorder: Recorder | None) -> None:
        self._session = session
        self._recorder = recorder
        self.accounts = SqlAccounts(session)
        self.users = SqlUsers(session)
        self.memberships = SqlMemberships(session)
        self.projects = SqlProjects(session)
        self.refresh_tokens = SqlRefreshTokens(session)
        self.one_time_codes = SqlOneTimeCodes(session)
        self.login_failures = SqlLoginFailures(session)
        self.answers = SqlAnswers(session)
        self.keys = SqlKeys(session)
        self.devices = SqlDevices(session)
        self.credentials = SqlCredentials(session)
        self.device_types = SqlDeviceTypes(session)
        self.events = SqlEvents(session)
        self.grants = SqlGrants(session)
        self.approvals = SqlApprovals(session)
        self.definitions = SqlDefinitions(session)
        self.executions = SqlExecutions(session)
        self.schedules = SqlSchedules(session)
        self.rules = SqlRules(session)
        self.readings = SqlReadings(session)
        self.webhooks = SqlWebhooks(session)
        self.deliveries = SqlDeliveries(session)

    async def record(self, fact: Fact) -> None:
        if not self._session.writable:
            raise ReadOnly
        if self._recorder is not None:
            await self._recorder.record(self, fact)

    def after_commit(self, call: Callable[[], None]) -> None:
        self._session.after_commit(call)


class SqlUnitOfWork:
    """Without a recorder, facts go nowhere."""

    def __init__(self, backend: Backend, recorder: Recorder | None = None) -> None:
        self._backend = backend
        self._recorder = recorder

    @asynccontextmanager
    async def write(self) -> AsyncIterator[SqlTransaction]:
        async with self._backend.write() as session:
            yield SqlTransaction(session, self._recorder)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[SqlTransaction]:
        async with self._backend.read() as session:
            yield SqlTransaction(session, self._recorder)
