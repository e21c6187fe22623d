"""Ports of the audit part: reading the chains and storing seals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from domain.audit.seal_model import AuditSeal, AuditSealRound, ChainHeads
from domain.events.hash_chain import ChainedEvent
from domain.events.ports import HasEvents
from domain.kernel.ids import AccountId


class AuditLogRepository(Protocol):
    async def heads(self, account_id: AccountId) -> ChainHeads:
        """The last record of each chain of the account that has records."""

    async def heads_of_all(self) -> Mapping[AccountId, ChainHeads]:
        """Of every account with a chain."""

    async def list_records(
        self, account_id: AccountId, *, after: int, limit: int, mentioning: str | None = None
    ) -> Sequence[ChainedEvent]:
        """Linked records with positions above `after`, by position; with `mentioning` only those whose data contain the text."""

    async def list_seals(self, account_id: AccountId, *, after: int, limit: int) -> Sequence[AuditSeal]:
        """Seals with numbers above `after`, by number."""

    async def last_seals(self) -> Mapping[AccountId, AuditSeal]:
        """The newest seal of every account that has one."""

    async def find_anchor(self, account_id: AccountId) -> AuditSeal | None:
        """The newest seal whose records retention has deleted, or is deleting: the chain begins after it."""

    async def last_sealed_ms(self) -> int | None:
        """When the last round of seals was stored; None: never."""

    async def add_round(self, sealed: AuditSealRound) -> None:
        """Raises Conflict if another process sealed one of the accounts meanwhile."""


class AuditTx(HasEvents, Protocol):
    @property
    def audit_log(self) -> AuditLogRepository: ...
