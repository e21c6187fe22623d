"""The first answer to a request is its only answer: `Idempotency-Key`, remembered for 24 hours per caller."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from domain.kernel.clock import DAY_MS

STORED_RESPONSE_TTL_MS = DAY_MS
COMMITTED = 102
"""The status (RFC 2518's "Processing") of a request whose change is committed and whose answer is not known yet."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """What was answered to `key` of `caller` (a caller's label); `request_hash` covers method, path and raw body.

    `status` is None until the first request has changed something, then `CARRIED_OUT`, in the end the answer's."""

    caller: str
    key: str
    request_hash: bytes
    status: int | None
    body: bytes
    at_ms: int


CURRENT_CLAIM: ContextVar[StoredResponse | None] = ContextVar("claimed", default=None)
"""The claim whose request is worked on in this context. A unit of work that writes marks it in its own transaction: whatever
becomes of the process or the client between the change and its answer, the change is not made again."""


class StoredResponseRepository(Protocol):
    async def get(self, caller: str, key: str) -> StoredResponse | None: ...

    async def claim(self, answer: StoredResponse) -> bool:
        """Insert unless (caller, key) is there already; False when it is."""
        ...

    async def mark_committed(self, claim: StoredResponse) -> None:
        """Mark this very claim, if it is not answered yet, with the transaction's end."""
        ...

    async def complete(self, answer: StoredResponse) -> None: ...

    async def release(self, caller: str, key: str) -> None:
        """Forget a claim whose request changed nothing, so that it can be tried again."""
        ...

    async def delete_if_unchanged(self, abandoned: StoredResponse) -> bool:
        """Delete exactly this one, answered or not; True for one caller only, and never for a younger claim of the same key."""
        ...

    async def delete_older_than(self, at_ms: int, limit: int) -> int: ...
