"""Idempotent requests: the first success of an `Idempotency-Key` is stored for 24 hours and replayed to the same caller.

The claim of a key travels with the caller (`caller.claim`) into `UnitOfWork.write`, which marks it in the caller's own
transaction. See docs/decisions/0008-idempotency-in-the-unit-of-work.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.kernel.clock import DAY_MS
from domain.kernel.errors import Conflict

STORED_RESPONSE_TTL_MS = DAY_MS
PROCESS_ID_LENGTH = 16
"""Bytes; a process id names one run of one instance."""
COMMITTED = 102
"""The stored status (102 "Processing", RFC 2518) of a request whose change is committed and whose response is not known yet."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The response to `key` of `caller` (a caller's label); `request_hash` covers method, path and the meaning of the body.

    `status` is None until the first request has changed something, then `COMMITTED`, and finally the HTTP status.
    `body` names the process that claimed the key until there is a response, which replaces it. `at_ms` is steady time."""

    caller: str
    key: str
    request_hash: bytes
    status: int | None
    body: bytes
    at_ms: int

    @property
    def seal_context(self) -> str:
        """What the sealed `body` is bound to."""
        return f"answer:{self.caller}:{self.key}"


class IdempotentReplayRollbackError(Exception):
    """Not a failure: ends and rolls back the transaction of a replayed request, which has passed all its checks."""


class StoredResponseRepository(Protocol):
    async def get(self, caller: str, key: str) -> StoredResponse | None: ...

    async def claim(self, answer: StoredResponse) -> bool:
        """Insert the claim. False if (caller, key) already exists."""

    async def mark_committed(self, claim: StoredResponse) -> None:
        """Mark exactly this claim as committed, unless it already has a response; part of the caller's transaction.

        Raises Conflict `IDEMPOTENCY_IN_PROGRESS` if another process has taken the key over: then this transaction must not
        commit, because the other one makes the same change."""

    async def complete(self, answer: StoredResponse) -> None:
        """Store the response of exactly this claim."""

    async def release(self, claim: StoredResponse) -> None:
        """Delete exactly this claim if its request changed nothing, so that the client can retry."""

    async def discard(self, claim: StoredResponse) -> None:
        """Delete exactly this claim, committed or not."""

    async def delete_if_unchanged(self, abandoned: StoredResponse) -> bool:
        """Delete this claim in this status. True for one caller only; a newer claim of the same key stays, and so does one that
        has been marked as committed meanwhile."""

    async def is_process_alive(self, process_id: bytes) -> bool:
        """Whether this other process may still work on the database."""

    async def page(self, after: StoredResponse | None, limit: int) -> Sequence[StoredResponse]:
        """Those that have a response, by caller and key, for re-encryption after a key rotation."""

    async def count(self) -> int:
        """How many have a response."""

    async def rekey(self, response: StoredResponse, after: bytes) -> bool:
        """Replace the ciphertext. False, and nothing written, when it is no longer the one of `response`."""

    async def delete_older_than(self, at_ms: int, limit: int) -> int: ...


def still_in_progress() -> Conflict:
    """The error of a request whose key is claimed by another request."""
    return Conflict(
        "The first request with this Idempotency-Key is still in progress. Try again in a moment.", code="IDEMPOTENCY_IN_PROGRESS"
    )
