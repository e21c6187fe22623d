"""Several use cases in one transaction: services that are given a `JoinedUnitOfWork` act inside one that is open already."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller
from domain.kernel.caller_recheck_in_transaction import check_stated_role

TxT = TypeVar("TxT")


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
    async def read(self, *, one_statement: bool = False) -> AsyncIterator[TxT]:
        """Sees what the transaction has changed so far."""
        yield self._tx
