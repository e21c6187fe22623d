"""Refresh tokens, one-time codes, failed logins and stored responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, and_, bindparam, delete, func, insert, not_, select, tuple_, update
from sqlalchemy.sql.dml import ReturningDelete
from sqlalchemy.sql.schema import Table

from adapters.storage.sql.mapper import RowMapper, insert_or_ignore, upsert
from adapters.storage.sql.process_lock import is_process_alive
from adapters.storage.sql.session import POSTGRES, DbSession
from adapters.storage.sql.tables import login_failures, one_time_codes, refresh_tokens, stored_responses, users
from domain.accounts.model import KNOWN_LOGIN_PREFIX, LoginFailures, OneTimeCode, RefreshToken
from domain.kernel.idempotency import COMMITTED, StoredResponse, still_in_progress
from domain.kernel.ids import SessionId, UserId

REFRESH_TOKEN = RowMapper(refresh_tokens, RefreshToken)
ONE_TIME_CODE = RowMapper(one_time_codes, OneTimeCode)
LOGIN_FAILURES = RowMapper(login_failures, LoginFailures)
STORED_RESPONSE = RowMapper(stored_responses, StoredResponse)


def delete_batch(table: Table, condition: ColumnElement[bool], *order: ColumnElement[int]) -> ReturningDelete[tuple[object]]:
    """DELETE of at most `at_limit` rows that match the condition."""
    keys = list(table.primary_key.columns)
    some = select(*keys).where(condition).order_by(*order).limit(bindparam("at_limit"))
    chosen = keys[0].in_(some) if len(keys) == 1 else tuple_(*keys).in_(some)
    return delete(table).where(chosen).returning(keys[0])


_HASH = refresh_tokens.c.token_hash == bindparam("at_hash")
_NOT_REVOKED = refresh_tokens.c.revoked_ms.is_(None)
_BEFORE: BindParameter[int] = bindparam("at_before")

ADD_TOKEN = insert(refresh_tokens)
GET_TOKEN = REFRESH_TOKEN.select().where(_HASH)
SPEND_TOKEN = (
    update(refresh_tokens).where(_HASH, _NOT_REVOKED, refresh_tokens.c.spent_ms.is_(None)).returning(refresh_tokens.c.family)
)
REVOKE_FAMILY = update(refresh_tokens).where(refresh_tokens.c.family == bindparam("at_family"), _NOT_REVOKED)
REVOKE_USER = update(refresh_tokens).where(
    refresh_tokens.c.user_id == bindparam("at_user"), refresh_tokens.c.family != bindparam("at_keep"), _NOT_REVOKED
)
DELETE_EXPIRED_TOKENS = delete_batch(refresh_tokens, refresh_tokens.c.expires_ms < _BEFORE, refresh_tokens.c.expires_ms)

LOCK_USER = select(users.c.user_id).where(users.c.user_id == bindparam("at_user")).with_for_update(key_share=True)
"""Locks the user's row, because the code's row may not exist yet."""
GET_CODE = ONE_TIME_CODE.select().where(one_time_codes.c.user_id == bindparam("at_user"))
UPSERT_CODE = upsert(one_time_codes, "code_hash", "issued_ms", "expires_ms", "tries", "used")

LOCK_SUBJECT = select(func.pg_advisory_xact_lock(func.hashtextextended(bindparam("at_subject"), 0)))
"""An advisory lock, because a first failure has no row to lock. Subjects are always locked in the order pair, address, known,
email."""
GET_FAILURES = LOGIN_FAILURES.select().where(login_failures.c.subject == bindparam("at_subject"))
UPSERT_FAILURES = upsert(login_failures, "count", "since_ms", "last_ms")
CLEAR_FAILURES = delete(login_failures).where(login_failures.c.subject == bindparam("at_subject"))
_LAST_FAILURE_BEFORE = login_failures.c.last_ms < _BEFORE
_IS_KNOWN_LOCATION = login_failures.c.subject.like(f"{KNOWN_LOGIN_PREFIX}%")
DELETE_OLD_FAILURES = delete_batch(login_failures, and_(_LAST_FAILURE_BEFORE, not_(_IS_KNOWN_LOCATION)), login_failures.c.last_ms)
DELETE_OLD_KNOWN_LOCATIONS = delete_batch(
    login_failures, and_(_LAST_FAILURE_BEFORE, _IS_KNOWN_LOCATION), login_failures.c.last_ms
)

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


class SqlRefreshTokenRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, token: RefreshToken) -> None:
        await self._session.write(ADD_TOKEN, **REFRESH_TOKEN.values(token))

    async def get(self, token_hash: bytes) -> RefreshToken | None:
        return REFRESH_TOKEN.first_or_none(await self._session.read(GET_TOKEN, at_hash=token_hash))

    async def mark_spent(self, token_hash: bytes, at_ms: int) -> bool:
        return bool(await self._session.write(SPEND_TOKEN, at_hash=token_hash, spent_ms=at_ms))

    async def revoke_family(self, family: SessionId, at_ms: int) -> None:
        await self._session.write(REVOKE_FAMILY, at_family=family, revoked_ms=at_ms)

    async def revoke_by_user(self, user_id: UserId, at_ms: int, *, keep: SessionId | None = None) -> None:
        await self._session.write(REVOKE_USER, at_user=user_id, at_keep=keep or "", revoked_ms=at_ms)

    async def delete_older_than(self, expires_ms: int, limit: int) -> int:
        return len(await self._session.write(DELETE_EXPIRED_TOKENS, at_before=expires_ms, at_limit=limit))


class SqlOneTimeCodeRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def get_for_update(self, user_id: UserId) -> OneTimeCode | None:
        if self._session.writable and self._session.dialect == POSTGRES:
            await self._session.write(LOCK_USER, at_user=user_id)
        return ONE_TIME_CODE.first_or_none(await self._session.read(GET_CODE, at_user=user_id))

    async def upsert(self, code: OneTimeCode) -> None:
        await self._session.write(UPSERT_CODE[self._session.dialect], **ONE_TIME_CODE.values(code))


class SqlLoginFailureRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def get_for_update(self, subject: str) -> LoginFailures | None:
        if self._session.writable and self._session.dialect == POSTGRES:
            await self._session.write(LOCK_SUBJECT, at_subject=subject)
        return LOGIN_FAILURES.first_or_none(await self._session.read(GET_FAILURES, at_subject=subject))

    async def upsert(self, failures: LoginFailures) -> None:
        await self._session.write(UPSERT_FAILURES[self._session.dialect], **LOGIN_FAILURES.values(failures))

    async def delete(self, subject: str) -> None:
        await self._session.write(CLEAR_FAILURES, at_subject=subject)

    async def delete_older_than(self, last_ms: int, limit: int) -> int:
        return len(await self._session.write(DELETE_OLD_FAILURES, at_before=last_ms, at_limit=limit))

    async def delete_known_logins_older_than(self, last_ms: int, limit: int) -> int:
        return len(await self._session.write(DELETE_OLD_KNOWN_LOCATIONS, at_before=last_ms, at_limit=limit))


class SqlStoredResponseRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def get(self, caller: str, key: str) -> StoredResponse | None:
        return STORED_RESPONSE.first_or_none(await self._session.read(FIND_RESPONSE, at_caller=caller, at_key=key))

    async def claim(self, answer: StoredResponse) -> bool:
        return bool(await self._session.write(CLAIM_KEY[self._session.dialect], **STORED_RESPONSE.values(answer)))

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
        rows = await self._session.read(PAGE_RESPONSES, **place, at_limit=limit)
        return [STORED_RESPONSE.from_row(row) for row in rows]

    async def count(self) -> int:
        return int((await self._session.read(COUNT_RESPONSES))[0][0])

    async def rekey(self, response: StoredResponse, after: bytes) -> bool:
        params = {"at_caller": response.caller, "at_key": response.key, "at_before": response.body, "at_after": after}
        return bool(await self._session.write(REKEY_RESPONSE, **params))

    async def delete_older_than(self, at_ms: int, limit: int) -> int:
        return len(await self._session.write(DELETE_OLD_RESPONSES, at_before=at_ms, at_limit=limit))


def _claim_params(claim: StoredResponse) -> dict[str, Any]:
    return {"at_caller": claim.caller, "at_key": claim.key, "at_ms_then": claim.at_ms}
