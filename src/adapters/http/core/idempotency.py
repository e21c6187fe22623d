"""`Idempotency-Key`: the first success of a key is its only response, for 24 hours and per caller.

Only successes are stored. An error changed nothing, so the same key can be tried again once its cause is gone. A response may
contain a secret that is shown once (a new API key), so stored responses are encrypted, bound to their caller and key.

A client that sends a key intends to retry when the connection breaks. So processing continues in a task of its own if the client
disconnects, and a retry with the same key gets its response. If the process dies between the change and the response, the claim
remains, marked as committed by the change's own transaction: the request is never processed again, and a retry gets 409
`IDEMPOTENCY_ANSWER_LOST`. If the process dies before the change, the key is free again.

A claim names its process: one run of one instance. The claim of a process that is gone is abandoned, and the next request takes
the key over. If the process was alive after all (it had only lost its connection), its change can no longer be committed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from quart import Response, request

from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller
from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import Conflict, DomainError, NotFound, PermissionDenied, Unauthenticated, Unavailable, ValidationFailed
from domain.kernel.idempotency import (
    COMMITTED,
    STORED_RESPONSE_TTL_MS,
    IdempotentReplayRollbackError,
    StoredResponse,
    StoredResponseRepository,
    still_in_progress,
)
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import Transaction, UnitOfWork

MAX_KEY_LENGTH = 255
SHUTDOWN_TIMEOUT_S = 1.0
ABANDONED_AFTER_MS = 2 * MINUTE_MS
"""No request runs this long (the longest waits 30 s for a device): its process died, and the key can be tried again."""

Handler = Callable[[SessionCaller | ApiKeyCaller], Awaitable[Response]]
"""Processes the request on behalf of the given caller, which carries the claim."""
IDEMPOTENCY_ERRORS = {409: "IDEMPOTENCY_MISMATCH IDEMPOTENCY_IN_PROGRESS IDEMPOTENCY_ANSWER_LOST"}
REPLAYED_HEADER = "Idempotency-Replayed"
STATE_CODES = ("DEVICE_DISABLED",)
"""Denials that are about the device and not about the caller."""


@dataclass(frozen=True, slots=True)
class _ExistingClaim:
    """What another request has stored under the key."""

    stored: StoredResponse
    is_abandoned: bool = False
    """It has no response, and its process is gone."""

    def is_free(self, now_ms: int) -> bool:
        """Whether the next request may take the key over."""
        if self.stored.status is None:
            return self.is_abandoned and self.stored.at_ms != now_ms  # the time distinguishes the claims of one key
        return now_ms - self.stored.at_ms > STORED_RESPONSE_TTL_MS


@service
class IdempotencyStore:
    """Stores responses by caller and key."""

    uow: UnitOfWork[Transaction]
    clock: Clock
    vault: Vault
    process_id: bytes
    """Names this run of this instance."""
    running_tasks: set[asyncio.Task[Response]] = field(default_factory=set, init=False)
    """The requests in process, which may outlive their connections."""

    async def close(self) -> None:
        """Cancel requests that still wait for a device; the claims of their changes stay marked."""
        for task in self.running_tasks:
            task.cancel()
        if self.running_tasks:
            await asyncio.wait(self.running_tasks, timeout=SHUTDOWN_TIMEOUT_S)

    async def execute_once(
        self, caller: SessionCaller | ApiKeyCaller, content: dict[str, Any], handler: Handler, operation: str
    ) -> Response:
        """Run `handler` once for this caller and key. `content` is that of the body; `operation` names the request in the log.

        Raises Conflict `IDEMPOTENCY_MISMATCH`, `…_IN_PROGRESS`, `…_ANSWER_LOST`."""
        key = request.headers["Idempotency-Key"]
        if not (1 <= len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
            raise ValidationFailed.for_field(
                "Idempotency-Key", f"must be 1 to {MAX_KEY_LENGTH} printable ASCII characters, such as a UUID."
            )
        claim = StoredResponse(_owner_of_keys(caller), key, _hash_request(content), None, self.process_id, self.clock.steady_ms())
        found = await self._claim(claim)
        if found is not None:
            response = self._replay(claim, found)
            devices = _devices_with_results(await response.get_json())
            await self._authorize_replay(replace(caller, is_replay=True, replayed_devices=devices), handler, operation)
            return response
        work = self._execute(claim, replace(caller, claim=claim), handler)
        task = asyncio.create_task(work, name="idempotent request")
        self.running_tasks.add(task)
        task.add_done_callback(self.running_tasks.discard)
        task.add_done_callback(consume_exception)
        return await asyncio.shield(task)

    async def _claim(self, claim: StoredResponse) -> _ExistingClaim | None:
        """None if this request now owns the claim, otherwise what is stored."""
        async with self.uow.write(caller=None) as tx:
            if await tx.stored_responses.claim(claim):
                return None
            stored = await tx.stored_responses.get(claim.caller, claim.key)
            if stored is not None:
                found = _ExistingClaim(stored, await self._is_abandoned(tx.stored_responses, stored, claim.at_ms))
                if not found.is_free(claim.at_ms):
                    return found
                if not await tx.stored_responses.delete_if_unchanged(stored):
                    return _ExistingClaim(replace(stored, status=None))  # another request was faster and is in progress
            return None if await tx.stored_responses.claim(claim) else _ExistingClaim(replace(stored or claim, status=None))

    async def _is_abandoned(self, responses: StoredResponseRepository, stored: StoredResponse, now_ms: int) -> bool:
        if stored.status not in (None, COMMITTED):
            return False
        if now_ms - stored.at_ms > ABANDONED_AFTER_MS:
            return True
        return stored.body != self.process_id and not await responses.is_process_alive(stored.body)

    async def _execute(self, claim: StoredResponse, caller: SessionCaller | ApiKeyCaller, handler: Handler) -> Response:
        try:
            response = await handler(caller)
        except BaseException as error:
            async with self.uow.write(caller=None) as tx:
                if isinstance(error, DomainError) and not isinstance(error, Unavailable):
                    # a denied request may have committed an audit event, but nothing else
                    await tx.stored_responses.discard(claim)
                else:
                    await tx.stored_responses.release(claim)  # stays if the request committed a change before it failed
            raise
        sealed = self.vault.seal((await response.get_data(as_text=False)).decode(), claim.seal_context)
        async with self.uow.write(caller=None) as tx:
            await tx.stored_responses.complete(replace(claim, status=response.status_code, body=sealed))
        return response

    def _replay(self, claim: StoredResponse, found: _ExistingClaim) -> Response:
        stored = found.stored
        if stored.request_hash != claim.request_hash:
            raise Conflict(
                "This Idempotency-Key was used with a different request. Use a new key for a new request.",
                code="IDEMPOTENCY_MISMATCH",
            )
        if stored.status == COMMITTED and found.is_abandoned:
            raise Conflict(
                "The first request with this Idempotency-Key was processed, but the service stopped before it could respond. "
                "Check its effect, and use a new key for a new request.",
                code="IDEMPOTENCY_ANSWER_LOST",
            )
        if stored.status is None or stored.status == COMMITTED:
            raise still_in_progress()
        content = self.vault.open(stored.body, claim.seal_context)
        response = Response(content, status=stored.status, content_type="application/json")
        response.headers[REPLAYED_HEADER] = "true"
        return response

    async def _authorize_replay(self, caller: SessionCaller | ApiKeyCaller, handler: Handler, operation: str) -> None:
        """Authorise a replay like a new request, with the role and grants of this moment, and log it.

        The handler makes all its checks in a transaction that is then rolled back. Raises what denies the caller; other errors
        are about the state that the first request has left, and whoever still may gets its response."""
        try:
            await handler(caller)
        except (PermissionDenied, Unauthenticated) as error:
            if error.code not in STATE_CODES:
                raise
        except (Unavailable, NotFound):
            raise
        except (DomainError, IdempotentReplayRollbackError):
            pass
        async with self.uow.write(replace(caller, is_replay=False), Role.VIEWER) as tx:
            text = f"Response given again for an Idempotency-Key: {operation}"
            tx.emit(event_of(caller, "response_replayed", text, self.clock.now_ms()))


def _owner_of_keys(caller: SessionCaller | ApiKeyCaller) -> str:
    """Whose keys these are. A service session acts as its maker, but neither gets the other's responses, nor another one's."""
    label = f"{caller.account_id}/{caller.label}"
    if isinstance(caller, SessionCaller) and caller.operations is not None:
        return f"{label}/{caller.session_id}"
    return label


def consume_exception(task: asyncio.Task[Response]) -> None:
    """Keep asyncio from logging an exception that nobody awaits because the client has disconnected."""
    if not task.cancelled():
        task.exception()


def _hash_request(content: dict[str, Any]) -> bytes:
    """Of what the request says, in whatever order, spacing and escapes its JSON says it."""
    parts = [request.method, request.path, request.query_string.decode("latin-1"), _with_exact_integers(content)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()


def _with_exact_integers(value: Any) -> Any:
    """With 10 for 10.0 and 1e1. Not RFC 8785, in which two integers beyond 2^53 may be one: they are two requests."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _with_exact_integers(child) for name, child in value.items()}
    return [_with_exact_integers(child) for child in value] if isinstance(value, list) else value


def _devices_with_results(content: Any) -> tuple[str, ...]:
    """The ids in the report of a request for many devices, without those that were refused."""
    listed = content.get("devices", ()) if isinstance(content, dict) else ()
    return tuple(each["deviceId"] for each in listed if each.get("outcome", "REFUSED") != "REFUSED")
