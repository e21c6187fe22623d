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

from domain.accounts.ports import AccountsTx
from domain.devices.ports import Vault
from domain.kernel.caller import Caller
from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.errors import Conflict, DomainError, Invalid, Unavailable
from domain.kernel.idempotency import CARRIED_OUT, CLAIMED, REMEMBERED_MS, Answer
from domain.kernel.unit_of_work import UnitOfWork

MAX_KEY = 255
CLOSES_WITHIN_S = 1.0
ABANDONED_MS = 2 * MINUTE_MS
"""No request works this long (the longest waits 30 s for a device): its process died, and the key may be tried again."""


@dataclass(frozen=True, slots=True)
class AnswerBook:
    """Where answers are remembered."""

    uow: UnitOfWork[AccountsTx]
    clock: Clock
    vault: Vault
    working: set[asyncio.Task[Response]] = field(default_factory=set)
    """As many as there are claims of the last half minute; what holds one that long is bounded by itself."""

    async def close(self) -> None:
        """End what still waits for a device; what it changed stays marked."""
        for task in self.working:
            task.cancel()
        if self.working:
            await asyncio.wait(self.working, timeout=CLOSES_WITHIN_S)


async def answer_once(book: AnswerBook, caller: Caller | None, raw: bytes, work: Callable[[], Awaitable[Response]]) -> Response:
    """Do `work` once for this caller and key. Raises Conflict `IDEMPOTENCY_MISMATCH`, `…_IN_PROGRESS`, `…_ANSWER_LOST`."""
    key = request.headers["Idempotency-Key"]
    if not (1 <= len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        raise Invalid.field("Idempotency-Key", f"must be 1 to {MAX_KEY} printable ASCII characters, such as a UUID.")
    who = f"{caller.account_id}/{caller.label}" if caller else "anyone"
    claim = Answer(who, key, _fingerprint(raw), None, b"", book.clock.now_ms())
    earlier = await _claim(book, claim)
    if earlier is not None:
        return _again(book, claim, earlier)
    task = asyncio.create_task(_work(book, claim, work), name="idempotent request")
    book.working.add(task)
    task.add_done_callback(book.working.discard)
    task.add_done_callback(_look)
    return await asyncio.shield(task)


def _look(task: asyncio.Task[Response]) -> None:
    """Whoever waited has been told; a failure that nobody waits for is no news."""
    if not task.cancelled():
        task.exception()


async def _work(book: AnswerBook, claim: Answer, work: Callable[[], Awaitable[Response]]) -> Response:
    CLAIMED.set(claim)
    try:
        response = await work()
    except Unavailable:
        await _release(book, claim)
        raise
    except DomainError:
        await _refused(book, claim)
        raise
    except BaseException:
        await _release(book, claim)
        raise
    finally:
        CLAIMED.set(None)
    sealed = book.vault.seal((await response.get_data(as_text=False)).decode(), _bound_to(claim))
    async with book.uow.write() as tx:
        await tx.answers.complete(replace(claim, status=response.status_code, body=sealed))
    return response


def _fingerprint(raw: bytes) -> bytes:
    head = json.dumps([request.method, request.path, request.query_string.decode("latin-1")]).encode()
    return hashlib.sha256(head + b"\n" + raw).digest()


def _bound_to(answer: Answer) -> str:
    return f"answer:{answer.caller}:{answer.key}"


async def _claim(book: AnswerBook, claim: Answer) -> Answer | None:
    """None when the claim is ours, else what stands there already."""
    async with book.uow.write() as tx:
        if await tx.answers.claim(claim):
            return None
        found = await tx.answers.find(claim.caller, claim.key)
        if found is not None and not _over(found, claim.at_ms):
            return found
        if (found is None or await tx.answers.supersede(found)) and await tx.answers.claim(claim):
            return None
        return replace(found or claim, status=None)  # somebody else was quicker: theirs is being worked on


def _over(found: Answer, now_ms: int) -> bool:
    return now_ms - found.at_ms > (ABANDONED_MS if found.status is None else REMEMBERED_MS)


def _lost(found: Answer, now_ms: int) -> bool:
    return found.status == CARRIED_OUT and now_ms - found.at_ms > ABANDONED_MS


async def _release(book: AnswerBook, claim: Answer) -> None:
    """Unless something was changed before it failed."""
    CLAIMED.set(None)
    async with book.uow.write() as tx:
        await tx.answers.release(claim.caller, claim.key)


async def _refused(book: AnswerBook, claim: Answer) -> None:
    """A refusal may have been written down; it has changed nothing else."""
    CLAIMED.set(None)
    async with book.uow.write() as tx:
        await tx.answers.supersede(claim)


def _again(book: AnswerBook, claim: Answer, earlier: Answer) -> Response:
    if earlier.request_hash != claim.request_hash:
        raise Conflict(
            "This Idempotency-Key was used with another request. Take a new key for a new request.",
            code="IDEMPOTENCY_MISMATCH",
        )
    if _lost(earlier, claim.at_ms):
        raise Conflict(
            "The first request with this Idempotency-Key was carried out, but the service stopped before it could answer. "
            "Look at what it was to change, and take a new key for a new request.",
            code="IDEMPOTENCY_ANSWER_LOST",
        )
    if earlier.status is None or earlier.status == CARRIED_OUT:
        raise Conflict(
            "The first request with this Idempotency-Key is still being worked on. Ask again in a moment.",
            code="IDEMPOTENCY_IN_PROGRESS",
        )
    content = book.vault.open(earlier.body, _bound_to(claim))
    response = Response(content, status=earlier.status, content_type="application/json")
    response.headers["Idempotency-Replayed"] = "true"
    return response
