"""Refresh tokens, one-time codes, failed logins and remembered answers."""

from __future__ import annotations

from sqlalchemy import BindParameter, ColumnElement, and_, bindparam, delete, func, insert, not_, select, tuple_, update
from sqlalchemy.sql.dml import ReturningDelete
from sqlalchemy.sql.schema import Table

from adapters.storage.sql.rows import Mapper, ignoring, replacing
from adapters.storage.sql.session import POSTGRES, Session
from adapters.storage.sql.tables import answers, login_failures, one_time_codes, refresh_tokens, users
from domain.accounts.model import KNOWN, LoginFailures, OneTimeCode, RefreshToken
from domain.kernel.idempotency import CARRIED_OUT, Answer
from domain.kernel.ids import MembershipId, UserId

TOKEN = Mapper(refresh_tokens, RefreshToken)
CODE = Mapper(one_time_codes, OneTimeCode)
FAILURES = Mapper(login_failures, LoginFailures)
ANSWER = Mapper(answers, Answer)


def forgetting(table: Table, condition: ColumnElement[bool], *order: ColumnElement[int]) -> ReturningDelete[tuple[object]]:
    """DELETE of at most `at_limit` rows that meet the condition."""
    keys = list(table.primary_key.columns)
    some = select(*keys).where(condition).order_by(*order).limit(bindparam("at_limit"))
    chosen = keys[0].in_(some) if len(keys) == 1 else tuple_(*keys).in_(some)
    return delete(table).where(chosen).returning(keys[0])


_HASH = refresh_tokens.c.token_hash == bindparam("at_hash")
_LIVE = refresh_tokens.c.revoked_ms.is_(None)
_BEFORE: BindParameter[int] = bindparam("at_before")

ADD_TOKEN = insert(refresh_tokens)
GET_TOKEN = TOKEN.select().where(_HASH)
SPEND = update(refresh_tokens).where(_HASH, _LIVE, refresh_tokens.c.spent_ms.is_(None)).returning(refresh_tokens.c.family)
REVOKE_FAMILY = update(refresh_tokens).where(refresh_tokens.c.family == bindparam("at_family"), _LIVE)
REVOKE_USER = update(refresh_tokens).where(refresh_tokens.c.user_id == bindparam("at_user"), _LIVE)
REVOKE_MEMBERSHIP = update(refresh_tokens).where(refresh_tokens.c.membership_id == bindparam("at_membership"), _LIVE)
FORGET_TOKENS = forgetting(refresh_tokens, refresh_tokens.c.expires_ms < _BEFORE, refresh_tokens.c.expires_ms)

LOCK_USER = select(users.c.user_id).where(users.c.user_id == bindparam("at_user")).with_for_update(key_share=True)
"""The user's row, because the code's may not be there yet."""
GET_CODE = CODE.select().where(one_time_codes.c.user_id == bindparam("at_user"))
PUT_CODE = replacing(one_time_codes, "code_hash", "issued_ms", "expires_ms", "tries", "used")

LOCK_SUBJECT = select(func.pg_advisory_xact_lock(func.hashtextextended(bindparam("at_subject"), 0)))
"""Of a first failure there is no row to lock. Subjects are always locked in one order: pair, address, known, email."""
GET_FAILURES = FAILURES.select().where(login_failures.c.subject == bindparam("at_subject"))
PUT_FAILURES = replacing(login_failures, "count", "since_ms", "last_ms")
CLEAR_FAILURES = delete(login_failures).where(login_failures.c.subject == bindparam("at_subject"))
_OLD = login_failures.c.last_ms < _BEFORE
_PLACE_KNOWN = login_failures.c.subject.like(f"{KNOWN}%")
FORGET_FAILURES = forgetting(login_failures, and_(_OLD, not_(_PLACE_KNOWN)), login_failures.c.last_ms)
FORGET_PLACES = forgetting(login_failures, and_(_OLD, _PLACE_KNOWN), login_failures.c.last_ms)

_PLACE = (answers.c.caller == bindparam("at_caller"), answers.c.key == bindparam("at_key"))
FIND_ANSWER = ANSWER.select().where(*_PLACE)
CLAIM_ANSWER = ignoring(answers)
CARRY_OUT_ANSWER = (
    update(answers)
    .where(*_PLACE, answers.c.at_ms == bindparam("at_ms_then"), answers.c.status.is_(None))
    .values(status=CARRIED_OUT)
)
COMPLETE_ANSWER = update(answers).where(*_PLACE)
SUPERSEDE_ANSWER = delete(answers).where(*_PLACE, answers.c.at_ms == bindparam("at_ms_then")).returning(answers.c.key)
RELEASE_ANSWER = delete(answers).where(*_PLACE, answers.c.status.is_(None))
FORGET_ANSWERS = forgetting(answers, answers.c.at_ms < _BEFORE, answers.c.at_ms)


class SqlRefreshTokens:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, token: RefreshToken) -> None:
        await self._session.write(ADD_TOKEN, **TOKEN.values(token))

    async def get(self, token_hash: bytes) -> RefreshToken | None:
        return TOKEN.maybe(await self._session.read(GET_TOKEN, at_hash=token_hash))

    async def spend(self, token_hash: bytes, at_ms: int) -> bool:
        return bool(await self._session.write(SPEND, at_hash=token_hash, spent_ms=at_ms))

    async def revoke_family(self, family: str, at_ms: int) -> None:
        await self._session.write(REVOKE_FAMILY, at_family=family, revoked_ms=at_ms)

    async def revoke_user(self, user_id: UserId, at_ms: int) -> None:
        await self._session.write(REVOKE_USER, at_user=user_id, revoked_ms=at_ms)

    async def revoke_membership(self, membership_id: MembershipId, at_ms: int) -> None:
        await self._session.write(REVOKE_MEMBERSHIP, at_membership=membership_id, revoked_ms=at_ms)

    async def forget_before(self, expires_ms: int, limit: int) -> int:
        return len(await self._session.write(FORGET_TOKENS, at_before=expires_ms, at_limit=limit))


class SqlOneTimeCodes:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def get(self, user_id: UserId) -> OneTimeCode | None:
        if self._session.writable and self._session.dialect == POSTGRES:
            await self._session.write(LOCK_USER, at_user=user_id)
        return CODE.maybe(await self._session.read(GET_CODE, at_user=user_id))

    async def put(self, code: OneTimeCode) -> None:
        await self._session.write(PUT_CODE[self._session.dialect], **CODE.values(code))


class SqlLoginFailures:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def get(self, subject: str) -> LoginFailures | None:
        if self._session.writable and self._session.dialect == POSTGRES:
            await self._session.write(LOCK_SUBJECT, at_subject=subject)
        return FAILURES.maybe(await self._session.read(GET_FAILURES, at_subject=subject))

    async def put(self, failures: LoginFailures) -> None:
        await self._session.write(PUT_FAILURES[self._session.dialect], **FAILURES.values(failures))

    async def clear(self, subject: str) -> None:
        await self._session.write(CLEAR_FAILURES, at_subject=subject)

    async def forget_before(self, last_ms: int, limit: int) -> int:
        return len(await self._session.write(FORGET_FAILURES, at_before=last_ms, at_limit=limit))

    async def forget_places_before(self, last_ms: int, limit: int) -> int:
        return len(await self._session.write(FORGET_PLACES, at_before=last_ms, at_limit=limit))


class SqlAnswers:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def find(self, caller: str, key: str) -> Answer | None:
        return ANSWER.maybe(await self._session.read(FIND_ANSWER, at_caller=caller, at_key=key))

    async def claim(self, answer: Answer) -> bool:
        return bool(await self._session.write(CLAIM_ANSWER[self._session.dialect], **ANSWER.values(answer)))

    async def carry_out(self, claim: Answer) -> None:
        row = {"at_caller": claim.caller, "at_key": claim.key, "at_ms_then": claim.at_ms}
        await self._session.later(CARRY_OUT_ANSWER, [row])

    async def complete(self, answer: Answer) -> None:
        await self._session.write(
            COMPLETE_ANSWER, at_caller=answer.caller, at_key=answer.key, status=answer.status, body=answer.body
        )

    async def release(self, caller: str, key: str) -> None:
        await self._session.write(RELEASE_ANSWER, at_caller=caller, at_key=key)

    async def supersede(self, abandoned: Answer) -> bool:
        where = {"at_caller": abandoned.caller, "at_key": abandoned.key, "at_ms_then": abandoned.at_ms}
        return bool(await self._session.write(SUPERSEDE_ANSWER, **where))

    async def forget_before(self, at_ms: int, limit: int) -> int:
        return len(await self._session.write(FORGET_ANSWERS, at_before=at_ms, at_limit=limit))
