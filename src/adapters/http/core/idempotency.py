"""`Idempotency-Key`: the first success of a key is its only answer, for 24 hours and per caller.

What is remembered is a success. A refusal changed nothing, so the same key may be tried again once the reason is gone. An
answer can hold a secret that is shown once (a new key), so answers are kept sealed, bound to their caller and key.

Who sends a key means to ask again when the line breaks. So the work does not end with the line: it is a task of its own, and its
answer is there for whoever comes back. A process that dies between the change and the answer leaves a claim that was marked in
the change's own transaction: it is never carried out again, and who asks is told so.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from quart import Response, request

from domain.devices.ports import Vault
from domain.kernel.caller import Caller
from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.errors import Conflict, DomainError, Unavailable, ValidationFailed
from domain.kernel.idempotency import COMMITTED, CURRENT_CLAIM, STORED_RESPONSE_TTL_MS, HasStoredResponses, StoredResponse
from domain.kernel.unit_of_work import UnitOfWork

MAX_KEY_LENGTH = 255
SHUTDOWN_TIMEOUT_S = 1.0
ABANDONED_AFTER_MS = 2 * MINUTE_MS
"""No request works this long (the longest waits 30 s for a device): its process died, and the key may be tried again."""


@dataclass(frozen=True, slots=True)
class IdempotencyStore:
    """Where answers are remembered."""

    uow: UnitOfWork[HasStoredResponses]
    clock: Clock
    vault: Vault
    running_tasks: set[asyncio.Task[Response]] = field(default_factory=set)
    """As many as there are claims of the last half minute; what holds one that long is bounded by itself."""

    async def close(self) -> None:
        """End what still waits for a device; what it changed stays marked."""
        for task in self.running_tasks:
            task.cancel()
        if self.running_tasks:
            await asyncio.wait(self.running_tasks, timeout=SHUTDOWN_TIMEOUT_S)


async def execute_once(
    book: IdempotencyStore, caller: Caller | None, raw: bytes, work: Callable[[], Awaitable[Response]]
) -> Response:
    """Do `work` once for this caller and key. Raises Conflict `IDEMPOTENCY_MISMATCH`, `…_IN_PROGRESS`, `…_ANSWER_LOST`."""
    key = request.headers["Idempotency-Key"]
    if not (1 <= len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
        raise ValidationFailed.for_field(
            "Idempotency-Key", f"must be 1 to {MAX_KEY_LENGTH} printable ASCII characters, such as a UUID."
        )
    who = f"{caller.account_id}/{caller.label}" if caller else "anyone"
    claim = StoredResponse(who, key, _hash_request(raw), None, b"", book.clock.now_ms())
    earlier = await _claim(book, claim)
    if earlier is not None:
        return _replay(book, claim, earlier)
    task = asyncio.create_task(_execute(book, claim, work), name="idempotent request")
    book.running_tasks.add(task)
    task.add_done_callback(book.running_tasks.discard)
    task.add_done_callback(_consume_exception)
    return await asyncio.shield(task)


def _consume_exception(task: asyncio.Task[Response]) -> None:
    """Whoever waited has been told; a failure that nobody waits for is no news."""
    if not task.cancelled():
        task.exception()


async def _execute(book: IdempotencyStore, claim: StoredResponse, work: Callable[[], Awaitable[Response]]) -> Response:
    CURRENT_CLAIM.set(claim)
    try:
        response = await work()
    except Unavailable:
        await _release_claim(book, claim)
        raise
    except DomainError:
        await _discard_claim(book, claim)
        raise
    except BaseException:
        await _release_claim(book, claim)
        raise
    finally:
        CURRENT_CLAIM.set(None)
    sealed = book.vault.seal((await response.get_data(as_text=False)).decode(), _seal_context(claim))
    async with book.uow.write() as tx:
        await tx.stored_responses.complete(replace(claim, status=response.status_code, body=sealed))
    return response


def _hash_request(raw: bytes) -> bytes:
    head = json.dumps([request.method, request.path, request.query_string.decode("latin-1")]).encode()
    return hashlib.sha256(head + b"\n" + raw).digest()


def _seal_context(answer: StoredResponse) -> str:
    return f"answer:{answer.caller}:{answer.key}"


async def _claim(book: IdempotencyStore, claim: StoredResponse) -> StoredResponse | None:
    """None when the claim is ours, else what stands there already."""
    async with book.uow.write() as tx:
        if await tx.stored_responses.claim(claim):
            return None
        found = await tx.stored_responses.get(claim.caller, claim.key)
        if found is not None and not _is_expired(found, claim.at_ms):
            return found
        if (found is None or await tx.stored_responses.delete_if_unchanged(found)) and await tx.stored_responses.claim(claim):
            return None
        return replace(found or claim, status=None)  # somebody else was quicker: theirs is being worked on


def _is_expired(found: StoredResponse, now_ms: int) -> bool:
    return now_ms - found.at_ms > (ABANDONED_AFTER_MS if found.status is None else STORED_RESPONSE_TTL_MS)


def _is_response_lost(found: StoredResponse, now_ms: int) -> bool:
    return found.status == COMMITTED and now_ms - found.at_ms > ABANDONED_AFTER_MS


async def _release_claim(book: IdempotencyStore, claim: StoredResponse) -> None:
    """Unless something was changed before it failed."""
    CURRENT_CLAIM.set(None)
    async with book.uow.write() as tx:
        await tx.stored_responses.release(claim.caller, claim.key)


async def _discard_claim(book: IdempotencyStore, claim: StoredResponse) -> None:
    """A refusal may have been written down; it has changed nothing else."""
    CURRENT_CLAIM.set(None)
    async with book.uow.write() as tx:
        await tx.stored_responses.delete_if_unchanged(claim)


def _replay(book: IdempotencyStore, claim: StoredResponse, earlier: StoredResponse) -> Response:
    if earlier.request_hash != claim.request_hash:
        raise Conflict(
            "This Idempotency-Key was used with another request. Take a new key for a new request.",
            code="IDEMPOTENCY_MISMATCH",
        )
    if _is_response_lost(earlier, claim.at_ms):
        raise Conflict(
            "The first request with this Idempotency-Key was carried out, but the service stopped before it could answer. "
            "Look at what it was to change, and take a new key for a new request.",
            code="IDEMPOTENCY_ANSWER_LOST",
        )
    if earlier.status is None or earlier.status == COMMITTED:
        raise Conflict(
            "The first request with this Idempotency-Key is still being worked on. Ask again in a moment.",
            code="IDEMPOTENCY_IN_PROGRESS",
        )
    content = book.vault.open(earlier.body, _seal_context(claim))
    response = Response(content, status=earlier.status, content_type="application/json")
    response.headers["Idempotency-Replayed"] = "true"
    return response
