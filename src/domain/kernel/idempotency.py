"""The first answer to a request is its only answer: `Idempotency-Key`, remembered for 24 hours per caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from domain.kernel.clock import DAY_MS

REMEMBERED_MS = DAY_MS


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered to `key` of `caller` (a caller's label); `request_hash` covers method, path and raw body.

    `status` is None while the first request is still being worked on."""

    caller: str
    key: str
    request_hash: bytes
    status: int | None
    body: bytes
    at_ms: int


class AnswerRepository(Protocol):
    async def find(self, caller: str, key: str) -> Answer | None: ...

    async def claim(self, answer: Answer) -> bool:
        """Insert unless (caller, key) is there already; False when it is."""
        ...

    async def complete(self, answer: Answer) -> None: ...

    async def release(self, caller: str, key: str) -> None:
        """Forget a claim whose request failed, so that it can be tried again."""
        ...

    async def supersede(self, abandoned: Answer) -> bool:
        """Delete exactly this one, answered or not; True for one caller only, and never for a younger claim of the same key."""
        ...

    async def forget_before(self, at_ms: int, limit: int) -> int: ...
