"""One change of state = one unit of work = one transaction; what it owes to others is written in the same transaction.

Each part names in its `ports.py` the transaction it needs (a Protocol with just its repositories). The storage adapter has
one transaction object that satisfies them all, so a service can reach nothing it did not declare.

    async with self._uow.write() as tx:       # BEGIN IMMEDIATE
        device = await tx.devices.get(...)
        await tx.devices.save(device.revoked())
        await tx.record(Fact(...))            # event and deliveries, same transaction
        tx.after_commit(wake_courier)         # runs only when the commit is durable
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from domain.kernel.domain_events import DomainEvent

Tx_co = TypeVar("Tx_co", covariant=True)


class Transaction(Protocol):
    async def emit(self, fact: DomainEvent) -> None:
        """Write a fact to the account's log, with all deliveries it owes: at the end of the transaction, as a part of it."""
        ...

    def after_commit(self, call: Callable[[], None]) -> None:
        """Run `call` once the transaction is durable. It must be quick and must not raise; a lost call must be harmless."""
        ...


class UnitOfWork(Protocol[Tx_co]):
    def write(self) -> AbstractAsyncContextManager[Tx_co]:
        """Commit on leaving without an exception, roll back otherwise. Raises Unavailable when the database does not answer."""
        ...

    def read(self) -> AbstractAsyncContextManager[Tx_co]:
        """A consistent snapshot; writing through it raises."""
        ...
