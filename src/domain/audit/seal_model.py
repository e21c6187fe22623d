"""Seals: what the service signs once an hour, the heads of an account's chains.

The hash of a record covers all records of its chain before it, so a signature over the last hashes proves all of them. A seal
also names the hash of the seal before, so the newest one proves all seals.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from domain.events.cursors import EventLogCursor
from domain.events.hash_chain import NO_HASH, EventChainHead
from domain.kernel.canonical_json import canonical_json
from domain.kernel.ids import AccountId

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


@dataclass(frozen=True, slots=True)
class AuditSealRound:
    """The seals of all accounts whose chains have grown. Every event that `log` covers is sealed."""

    sealed_ms: int
    log: EventLogCursor
    seals: Sequence[AuditSeal]


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
