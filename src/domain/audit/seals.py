"""Seals: what the service signs once an hour, the heads of an account's chains that have grown since the last round.

The hash of a record covers all records of its chain before it, so a signature over the last hashes proves all of them. A seal
also names the hash of the seal before, so the newest one proves all seals.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from domain.events.cursors import EventLogCursor
from domain.events.hash_chain import NO_HASH, ChainedEvent, EventChainHead
from domain.events.ports import EventsTx
from domain.kernel.canonical_json import canonical_json
from domain.kernel.clock import HOUR_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.ids import AccountId
from domain.kernel.unit_of_work import UnitOfWork

SEAL_TYPE: Final = "latchboard-audit-seal-1"
"""Part of what is signed, so that no other document passes as a seal."""

ChainHeads = Mapping[int, EventChainHead]
"""By writer number."""


class AuditSealSigner(Protocol):
    """Port: a key pair of Ed25519 (RFC 8032)."""

    @property
    def key_id(self) -> str: ...

    @property
    def public_key(self) -> str:
        """32 bytes in hexadecimal."""

    def sign(self, content: bytes) -> str:
        """64 bytes in hexadecimal."""


class AuditSealSignerProvider(Protocol):
    """Port: the key that seals now; it changes with the secret keys of the installation."""

    def newest(self) -> AuditSealSigner: ...


@dataclass(frozen=True, slots=True)
class AuditSeal:
    """`content` is the canonical JSON that was signed. `number` counts the seals of an account from 1."""

    account_id: AccountId
    number: int
    sealed_ms: int
    content: str
    signature: str

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()


def seal_heads(account_id: AccountId, heads: ChainHeads, last: AuditSeal | None, now_ms: int, key: AuditSealSigner) -> AuditSeal:
    """The next seal of the account after `last`."""
    number = 1 if last is None else last.number + 1
    content = canonical_json(
        {
            "type": SEAL_TYPE,
            "accountId": account_id,
            "number": number,
            "sealedAt": now_ms,
            "previous": NO_HASH if last is None else last.hash,
            "heads": [_head_object(writer, heads[writer]) for writer in sorted(heads)],
            "keyId": key.key_id,
            "publicKey": key.public_key,
        }
    )
    return AuditSeal(account_id, number, now_ms, content, key.sign(content.encode()))


def _head_object(writer: int, head: EventChainHead) -> dict[str, Any]:
    return {"writer": writer, "sequence": head.sequence, "hash": head.hash, "position": head.position}


def heads_of(content: Mapping[str, Any]) -> dict[int, EventChainHead]:
    """Of a seal's decoded content. Raises KeyError or TypeError for another document."""
    return {each["writer"]: EventChainHead(each["sequence"], each["hash"], each["position"]) for each in content["heads"]}


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

    async def add_round(self, sealed_ms: int, log: EventLogCursor, seals: Sequence[AuditSeal]) -> None:
        """The seals of all accounts whose chains have grown. Every event that `log` covers is sealed. Raises Conflict if another
        process sealed one of the accounts meanwhile."""


class AuditTx(EventsTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def audit_log(self) -> AuditLogRepository: ...


SEAL_INTERVAL_MS: Final = HOUR_MS


@service
class AuditSealService:
    uow: UnitOfWork[AuditTx]
    clock: Clock
    keys: AuditSealSignerProvider
    sealed: int = field(default=0, init=False)
    """Seals stored by this process."""
    last_sealed_ms: int | None = field(default=None, init=False)
    """As last read or written by this process."""

    async def next_due_ms(self) -> int:
        """When the next round is due. A clock that was set back makes it due at once, not in the far future."""
        async with self.uow.read() as tx:
            self.last_sealed_ms = await tx.audit_log.last_sealed_ms()
        now_ms = self.clock.now_ms()
        last_ms = self.last_sealed_ms
        return now_ms if last_ms is None or last_ms > now_ms else last_ms + SEAL_INTERVAL_MS

    async def seal(self) -> int:
        """Seal every account whose chains have grown; returns how many. Raises Conflict if another process does the same."""
        async with self.uow.read() as tx:  # one snapshot: the cursor covers no record that the heads do not
            log = await tx.events.end()
            heads, last = await tx.audit_log.heads_of_all(), await tx.audit_log.last_seals()
        key, now_ms = self.keys.newest(), self.clock.now_ms()
        seals = [
            seal_heads(account_id, found, last.get(account_id), now_ms, key)
            for account_id, found in heads.items()
            if _has_grown(found, last.get(account_id))
        ]
        async with self.uow.write(caller=None) as tx:
            await tx.audit_log.add_round(now_ms, log, seals)
        self.sealed += len(seals)
        self.last_sealed_ms = now_ms
        return len(seals)


def _has_grown(heads: ChainHeads, last: AuditSeal | None) -> bool:
    return last is None or heads_of(json.loads(last.content)) != heads
