"""Refresh tokens, one-time codes and failed logins."""

from __future__ import annotations

from sqlalchemy import BindParameter, and_, bindparam, delete, func, insert, not_, select, update

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.row_mapper import RowMapper
from adapters.storage.sql.statement_builders import delete_batch, upsert
from adapters.storage.sql.tables import login_failures, one_time_codes, refresh_tokens, users
from domain.kernel.ids import SessionId, UserId
from domain.sign_in.model import KNOWN_LOGIN_PREFIX, LoginFailures, PasswordChangeCode, RefreshToken

REFRESH_TOKEN = RowMapper(refresh_tokens, RefreshToken)
ONE_TIME_CODE = RowMapper(one_time_codes, PasswordChangeCode)
LOGIN_FAILURES = RowMapper(login_failures, LoginFailures)

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


class SqlRefreshTokenRepository(SqlRepository):
    async def add(self, token: RefreshToken) -> None:
        await self._session.write(ADD_TOKEN, **REFRESH_TOKEN.values(token))

    async def get(self, token_hash: bytes) -> RefreshToken | None:
        return await self._first(REFRESH_TOKEN, GET_TOKEN, at_hash=token_hash)

    async def mark_spent(self, token_hash: bytes, at_ms: int) -> bool:
        return bool(await self._session.write(SPEND_TOKEN, at_hash=token_hash, spent_ms=at_ms))

    async def revoke_family(self, family: SessionId, at_ms: int) -> None:
        await self._session.write(REVOKE_FAMILY, at_family=family, revoked_ms=at_ms)

    async def revoke_by_user(self, user_id: UserId, at_ms: int, *, keep: SessionId | None = None) -> None:
        await self._session.write(REVOKE_USER, at_user=user_id, at_keep=keep or "", revoked_ms=at_ms)

    async def delete_older_than(self, expires_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_EXPIRED_TOKENS, at_before=expires_ms, at_limit=limit)


class SqlPasswordChangeCodeRepository(SqlRepository):
    async def get_for_update(self, user_id: UserId) -> PasswordChangeCode | None:
        if self._takes_locks:
            await self._session.write(LOCK_USER, at_user=user_id)
        return await self._first(ONE_TIME_CODE, GET_CODE, at_user=user_id)

    async def upsert(self, code: PasswordChangeCode) -> None:
        await self._session.write(UPSERT_CODE, **ONE_TIME_CODE.values(code))


class SqlLoginFailureRepository(SqlRepository):
    async def get_for_update(self, subject: str) -> LoginFailures | None:
        if self._takes_locks:
            await self._session.write(LOCK_SUBJECT, at_subject=subject)
        return await self._first(LOGIN_FAILURES, GET_FAILURES, at_subject=subject)

    async def upsert(self, failures: LoginFailures) -> None:
        await self._session.write(UPSERT_FAILURES, **LOGIN_FAILURES.values(failures))

    async def delete(self, subject: str) -> None:
        await self._session.write(CLEAR_FAILURES, at_subject=subject)

    async def delete_older_than(self, last_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_OLD_FAILURES, at_before=last_ms, at_limit=limit)

    async def delete_known_logins_older_than(self, last_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_OLD_KNOWN_LOCATIONS, at_before=last_ms, at_limit=limit)
