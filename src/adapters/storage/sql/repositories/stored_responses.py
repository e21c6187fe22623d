"""Remembered responses of idempotent requests: claimed, committed, stored, released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, bindparam, delete, func, select, tuple_, update

from adapters.storage.sql.mapping import RowMapper, SqlRepository
from adapters.storage.sql.probes import is_process_alive
from adapters.storage.sql.session import POSTGRES
from adapters.storage.sql.statements import delete_batch, insert_or_ignore
from adapters.storage.sql.tables import stored_responses
from domain.kernel.idempotency import COMMITTED, StoredResponse, still_in_progress

STORED_RESPONSE = RowMapper(stored_responses, StoredResponse)

_BEFORE: BindParameter[int] = bindparam("at_before")
_IDEMPOTENCY_KEY = (stored_responses.c.caller == bindparam("at_caller"), stored_responses.c.key == bindparam("at_key"))
FIND_RESPONSE = STORED_RESPONSE.select().where(*_IDEMPOTENCY_KEY)
CLAIM_KEY = insert_or_ignore(stored_responses)
_THIS_CLAIM = (*_IDEMPOTENCY_KEY, stored_responses.c.at_ms == bindparam("at_ms_then"))
MARK_COMMITTED = (
    update(stored_responses)
    .where(*_THIS_CLAIM)
    .values(status=func.coalesce(stored_responses.c.status, COMMITTED))
    .returning(stored_responses.c.key)
)
_HAS_RESPONSE = stored_responses.c.status != COMMITTED  # NULL, of a claim, is neither
PAGE_RESPONSES = (
    STORED_RESPONSE.select()
    .where(
        tuple_(stored_responses.c.caller, stored_responses.c.key) > tuple_(bindparam("at_caller"), bindparam("at_key")),
        _HAS_RESPONSE,
    )
    .order_by(stored_responses.c.caller, stored_responses.c.key)
    .limit(bindparam("at_limit"))
)
COUNT_RESPONSES = select(func.count()).select_from(stored_responses).where(_HAS_RESPONSE)
REKEY_RESPONSE = (
    update(stored_responses)
    .where(*_IDEMPOTENCY_KEY, stored_responses.c.body == bindparam("at_before"))
    .values(body=bindparam("at_after"))
    .returning(stored_responses.c.key)
)
STORE_RESPONSE = update(stored_responses).where(*_THIS_CLAIM)
DELETE_ABANDONED_CLAIM = (
    delete(stored_responses)
    .where(*_THIS_CLAIM, stored_responses.c.status.is_not_distinct_from(bindparam("at_status")))
    .returning(stored_responses.c.key)
)
DISCARD_CLAIM = delete(stored_responses).where(*_THIS_CLAIM)
RELEASE_CLAIM = DISCARD_CLAIM.where(stored_responses.c.status.is_(None))
DELETE_OLD_RESPONSES = delete_batch(stored_responses, stored_responses.c.at_ms < _BEFORE, stored_responses.c.at_ms)


class SqlStoredResponseRepository(SqlRepository):
    async def get(self, caller: str, key: str) -> StoredResponse | None:
        return await self._first(STORED_RESPONSE, FIND_RESPONSE, at_caller=caller, at_key=key)

    async def claim(self, answer: StoredResponse) -> bool:
        return bool(await self._session.write(CLAIM_KEY, **STORED_RESPONSE.values(answer)))

    async def mark_committed(self, claim: StoredResponse) -> None:
        if not await self._session.write(MARK_COMMITTED, **_claim_params(claim)):
            raise still_in_progress()

    async def complete(self, answer: StoredResponse) -> None:
        await self._session.write(STORE_RESPONSE, **_claim_params(answer), status=answer.status, body=answer.body)

    async def release(self, claim: StoredResponse) -> None:
        await self._session.write(RELEASE_CLAIM, **_claim_params(claim))

    async def discard(self, claim: StoredResponse) -> None:
        await self._session.write(DISCARD_CLAIM, **_claim_params(claim))

    async def delete_if_unchanged(self, abandoned: StoredResponse) -> bool:
        params = {**_claim_params(abandoned), "at_status": abandoned.status}
        return bool(await self._session.write(DELETE_ABANDONED_CLAIM, **params))

    async def is_process_alive(self, process_id: bytes) -> bool:
        """On SQLite never: the instance lock allows one process."""
        return self._session.dialect == POSTGRES and await is_process_alive(self._session, process_id)

    async def page(self, after: StoredResponse | None, limit: int) -> Sequence[StoredResponse]:
        place = {"at_caller": "", "at_key": ""} if after is None else {"at_caller": after.caller, "at_key": after.key}
        return await self._list(STORED_RESPONSE, PAGE_RESPONSES, **place, at_limit=limit)

    async def count(self) -> int:
        return await self._number(COUNT_RESPONSES)

    async def rekey(self, response: StoredResponse, after: bytes) -> bool:
        params = {"at_caller": response.caller, "at_key": response.key, "at_before": response.body, "at_after": after}
        return bool(await self._session.write(REKEY_RESPONSE, **params))

    async def delete_older_than(self, at_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_OLD_RESPONSES, at_before=at_ms, at_limit=limit)


def _claim_params(claim: StoredResponse) -> dict[str, Any]:
    return {"at_caller": claim.caller, "at_key": claim.key, "at_ms_then": claim.at_ms}
