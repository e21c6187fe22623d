"""One change of state = one unit of work = one transaction, which also stores its events and deliveries (transactional outbox).

Each part has one transaction type: a Protocol with its repositories, and by inheritance those of the parts below it. The storage
adapter has one transaction object that satisfies them all; the type keeps a service from reaching into a higher part.

    async with self.uow.write(caller, Role.MEMBER) as tx:  # BEGIN IMMEDIATE
        device = await tx.devices.get(...)
        await tx.devices.save(device.revoked())
        tx.emit(event_of(caller, ...))        # event and deliveries, same transaction
        tx.after_commit(wake_worker.set)      # runs only when the commit is durable

Several use cases in one transaction: services that are given a `JoinedUnitOfWork` act inside one that is open already.
"""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, Protocol, TypeAlias, TypeVar, overload

from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller, check_stated_role
from domain.kernel.clock import SteadyTimeRepository
from domain.kernel.domain_event import DomainEvent
from domain.kernel.idempotency import StoredResponseRepository
from domain.kernel.life import LifeRepository

Tx_co = TypeVar("Tx_co", covariant=True)

EngineCommitLock: TypeAlias = AbstractAsyncContextManager[None]
"""Port: held from the engine's result for a batch until the commit that stores it, and while rules change (an `asyncio.Lock`).

Without it, a changed rule would start from a stored state that the engine has already left, and would fire twice.
"""


class Transaction(Protocol):
    """What every part may do in a transaction. The type of a part adds its repositories to those of the parts below."""

    @property
    def stored_responses(self) -> StoredResponseRepository: ...

    @property
    def steady_time(self) -> SteadyTimeRepository: ...

    @property
    def life(self) -> LifeRepository: ...

    def emit(self, event: DomainEvent) -> None:
        """Store the event in the account's log, with its webhook deliveries, at the end of this transaction."""

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call `call` once the commit is durable. It must be quick and must not raise; losing the call must be harmless."""


class UnitOfWork(Protocol[Tx_co]):
    @overload
    def write(self, caller: None, *, background: bool = False) -> AbstractAsyncContextManager[Tx_co]:
        """A change that no request makes, such as a worker's. `background`: one of many long ones; on SQLite, with its single
        writer, others go before it."""

    @overload
    def write(
        self, caller: SessionCaller | ApiKeyCaller, needs: Role, *, locks_account: bool = False, background: bool = False
    ) -> AbstractAsyncContextManager[Tx_co]:
        """A change that `caller` requests. `needs`: the lowest role that may make it; for an API key, the service asks the
        `Authorizer` for a grant in this transaction. There is no default, so that no service forgets it.

        The caller's membership or key is read again in this transaction and stays as it is until the end
        (`caller.py`). Its idempotency claim is marked. `locks_account`: locks the account first, so that
        such changes of one account follow one another: of members, who could change each other and deadlock; and of what is
        counted up to a bound. `background`: of many objects; as above.

        The caller's precondition runs in this transaction before the body: whatever is read meanwhile with `read` is read in it,
        and what is found by its id is locked. Raises VersionMismatch.

        For a replay (`caller.is_replay`), IdempotentReplayRollbackError is raised at the end instead of a commit.

        Commits on exit, rolls back on an exception. Raises PermissionDenied `ROLE_REQUIRED`, Unauthenticated for a caller that
        has lost its access, Unavailable when the database does not respond."""

    def rehearse(self, caller: SessionCaller | ApiKeyCaller, needs: Role) -> AbstractAsyncContextManager[Tx_co]:
        """A change that is always undone, with the checks of `write`. On SQLite it keeps no writer: what it changes it copies.
        Raises NeedsWriterError for a change that it cannot make so; then make it in a transaction that is rolled back."""

    def read(self, *, one_statement: bool = False) -> AbstractAsyncContextManager[Tx_co]:
        """A consistent snapshot; writing through it raises. `one_statement`: a single call of a repository that is one
        statement; PostgreSQL then needs one round trip in place of three, and refuses a second statement."""


class NeedsWriterError(Exception):
    """Not a failure: only a transaction that could commit can make this change."""


TxT = TypeVar("TxT")
T = TypeVar("T")

GIVE_WAY_EVERY = 16
"""Objects between two pauses of a long loop: about a millisecond's work."""

OBJECTS_PER_TRANSACTION = 25
"""Of what is done to many objects, each decided on its own: some ten milliseconds at SQLite's only writer, and between two of
these transactions others write."""


@types.coroutine
def give_way() -> Generator[None, None, None]:
    """Let all others that are ready run once: a loop over thousands of objects that waits for nothing would keep every other
    request of the process waiting."""
    yield


def in_steps(items: Sequence[T], size: int = GIVE_WAY_EVERY) -> Iterator[Sequence[T]]:
    """Parts of a few objects; await `give_way` after each."""
    return (items[start : start + size] for start in range(0, len(items), size))


class JoinedUnitOfWork(Generic[TxT]):
    """A `UnitOfWork` whose changes are committed with the open transaction, or not at all.

    Whoever has opened that transaction has checked the caller's authority in it, marks its idempotency claim and, if anything may
    be added up to a bound, has locked its account. The role that each change needs is checked here."""

    def __init__(self, tx: TxT) -> None:
        self._tx = tx

    @asynccontextmanager
    async def write(
        self,
        caller: SessionCaller | ApiKeyCaller | None,
        needs: Role = Role.OWNER,
        *,
        locks_account: bool = False,
        background: bool = False,
    ) -> AsyncIterator[TxT]:
        if caller is not None:
            check_stated_role(caller, needs)
        yield self._tx

    @asynccontextmanager
    async def rehearse(self, caller: SessionCaller | ApiKeyCaller, needs: Role) -> AsyncIterator[TxT]:
        raise NeedsWriterError
        yield self._tx

    @asynccontextmanager
    async def read(self, *, one_statement: bool = False) -> AsyncIterator[TxT]:
        """Sees what the transaction has changed so far."""
        yield self._tx
