"""The event log as linked records, with its seals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.audit.seals import AuditSeal, ChainHeads
from domain.events.cursors import EventLogCursor
from domain.events.hash_chain import ChainedEvent
from domain.kernel.canonical_json import canonical_json
from domain.kernel.errors import Conflict
from domain.kernel.ids import AccountId
from support.memory_storage.audit_seals import ANCHORS, ROUNDS, SEALS
from support.memory_storage.events import EVENTS, HEADS, LINKS
from support.memory_storage.tables import Database


class MemoryAuditLogRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def heads(self, account_id: AccountId) -> ChainHeads:
        head = self._database.rows(HEADS).get(account_id)
        return {} if head is None else {0: head}

    async def heads_of_all(self) -> Mapping[AccountId, ChainHeads]:
        return {account_id: {0: head} for account_id, head in self._database.rows(HEADS).items()}

    async def list_records(
        self, account_id: AccountId, *, after: int, limit: int, mentioning: str | None = None
    ) -> Sequence[ChainedEvent]:
        links = self._database.rows(LINKS)
        found = [
            ChainedEvent(event, *links[position])
            for position, event in self._database.rows(EVENTS).items()
            if event.account_id == account_id and position > after and mentioning in (None, *_part(event.payload, mentioning))
        ]
        return found[:limit]

    async def list_seals(self, account_id: AccountId, *, after: int, limit: int) -> Sequence[AuditSeal]:
        return [seal for seal in self._of(account_id) if seal.number > after][:limit]

    async def last_seals(self) -> Mapping[AccountId, AuditSeal]:
        return {seal.account_id: seal for seal in self._database.rows(SEALS).values()}

    async def find_anchor(self, account_id: AccountId) -> AuditSeal | None:
        number = self._database.rows(ANCHORS).get(account_id, 0)
        return self._database.rows(SEALS).get((account_id, number))

    async def last_sealed_ms(self) -> int | None:
        return max(self._database.rows(ROUNDS), default=None)

    async def add_round(self, sealed_ms: int, log: EventLogCursor, seals: Sequence[AuditSeal]) -> None:
        stored = self._database.writable_rows(SEALS)
        for seal in seals:
            if (seal.account_id, seal.number) in stored:
                raise Conflict("Another process has sealed this account.")
            stored[seal.account_id, seal.number] = seal
        self._database.writable_rows(ROUNDS)[sealed_ms] = log

    def _of(self, account_id: AccountId) -> list[AuditSeal]:
        return [seal for seal in self._database.rows(SEALS).values() if seal.account_id == account_id]


def _part(payload: object, text: str | None) -> tuple[str, ...]:
    """The text if the payload has it."""
    return (text,) if text is not None and text in canonical_json(payload) else ()
