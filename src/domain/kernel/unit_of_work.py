"""One change of state = one unit of work = one transaction, which also stores its events and deliveries (transactional outbox).

Each service declares the transaction type it needs: a Protocol with just the repositories it uses. The storage adapter has one
transaction object that satisfies them all; the type keeps a service from reaching other repositories.

    async with self._uow.write(caller) as tx:  # BEGIN IMMEDIATE
        device = await tx.devices.get(...)
        await tx.devices.save(device.revoked())
        await tx.emit(DomainEvent(...))       # event and deliveries, same transaction
        tx.after_commit(wake_worker.set)      # runs only when the commit is durable
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias, TypeVar

from domain.kernel.caller import ApiKeyCaller, Session
from domain.kernel.domain_events import DomainEvent

Tx_co = TypeVar("Tx_co", covariant=True)

EngineCommitLock: TypeAlias = AbstractAsyncContextManager[None]
"""Port: held from the engine's result for a batch until the commit that stores it, and while rules change (an `asyncio.Lock`).

Without it, a changed rule would start from a stored state that the engine has already left, and would fire twice.
"""


class Transaction(Protocol):
    async def emit(self, event: DomainEvent) -> None:
        """Store the event in the account's log, with its webhook deliveries, at the end of this transaction."""
        ...

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call `call` once the commit is durable. It must be quick and must not raise; losing the call must be harmless."""
        ...


class UnitOfWork(Protocol[Tx_co]):
    def write(self, caller: Session | ApiKeyCaller | None) -> AbstractAsyncContextManager[Tx_co]:
        """`caller`: the one whose request makes the change; its idempotency claim is marked in the same transaction. None for a
        change that no request makes, such as a worker's. There is no default, so that no service forgets it.

        Commit on exit, roll back on an exception. Raises Unavailable when the database does not respond."""
        ...

    def read(self) -> AbstractAsyncContextManager[Tx_co]:
        """A consistent snapshot; writing through it raises."""
        ...
