"""Refresh tokens, one-time codes and failed logins.

The sessions of users, one row for each sign-in.

The links that unlock the logins of users, one for each user.

Passkeys, and the challenges that were used and have not expired.

Authenticator apps, recovery codes, and sign-ins that wait for a second factor.

Identities of users at identity providers, and the states of sign-ins that were used.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BindParameter, and_, bindparam, delete, func, insert, not_, select, update

from adapters.storage.errors import identity_taken_error
from adapters.storage.sql.mapping import (
    JSON_TUPLE,
    EntityStatements,
    RowMapper,
    SqlEntityRepository,
    SqlRepository,
    unique_violation_as,
)
from adapters.storage.sql.repositories.accounts import MEMBERSHIP
from adapters.storage.sql.session import LOOK_UP
from adapters.storage.sql.statements import delete_batch, insert_or_ignore, upsert
from adapters.storage.sql.tables import (
    approvals,
    external_identities,
    login_challenges,
    login_failures,
    memberships,
    one_time_codes,
    passkeys,
    recovery_codes,
    refresh_tokens,
    service_sessions,
    totp_secrets,
    unlock_links,
    used_passkey_challenges,
    used_sign_in_states,
    user_sessions,
    users,
)
from adapters.storage.sql.tables.commands import PENDING_APPROVAL
from domain.accounts.model import Membership
from domain.kernel.errors import Conflict
from domain.kernel.ids import PasskeyId, SessionId, UserId
from domain.oidc.ports import ExternalIdentity
from domain.sign_in.model import (
    KNOWN_LOGIN_PREFIX,
    LoginChallenge,
    LoginFailures,
    Passkey,
    PasswordChangeCode,
    RefreshToken,
    SignInUnlockLink,
    TotpEnrollment,
    UserSession,
    VerifiedPasskeyChallenge,
)

REFRESH_TOKEN = RowMapper(refresh_tokens, RefreshToken)
ONE_TIME_CODE = RowMapper(one_time_codes, PasswordChangeCode)
LOGIN_FAILURES = RowMapper(login_failures, LoginFailures)

_IS_TOKEN = refresh_tokens.c.token_hash == bindparam("at_hash")
_TOKEN_NOT_REVOKED = refresh_tokens.c.revoked_ms.is_(None)
_BEFORE: BindParameter[int] = bindparam("at_before")

ADD_TOKEN = insert(refresh_tokens)
GET_TOKEN = REFRESH_TOKEN.select().where(_IS_TOKEN)
SPEND_TOKEN = (
    update(refresh_tokens)
    .where(_IS_TOKEN, _TOKEN_NOT_REVOKED, refresh_tokens.c.spent_ms.is_(None))
    .returning(refresh_tokens.c.family)
)
REVOKE_FAMILY = update(refresh_tokens).where(refresh_tokens.c.family == bindparam("at_family"), _TOKEN_NOT_REVOKED)
REVOKE_USER = update(refresh_tokens).where(
    refresh_tokens.c.user_id == bindparam("at_user"), refresh_tokens.c.family != bindparam("at_keep"), _TOKEN_NOT_REVOKED
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


USER_SESSION = RowMapper(user_sessions, UserSession)

_IS_USER = user_sessions.c.user_id == bindparam("at_user")
_SESSION_NOT_REVOKED = user_sessions.c.revoked_ms.is_(None)

SESSIONS = EntityStatements(USER_SESSION, "session_id")
FIND_WITH_MEMBERSHIP = (
    select(*USER_SESSION.columns, *MEMBERSHIP.columns)
    .join(memberships, memberships.c.membership_id == user_sessions.c.membership_id)
    .where(SESSIONS.is_id)
    .execution_options(**LOOK_UP)
)
_LAST_USED = func.coalesce(service_sessions.c.last_used_ms, user_sessions.c.last_used_ms)
_IS_SERVICE = service_sessions.c.session_id == user_sessions.c.session_id
LIST_OPEN = (
    select(*(_LAST_USED if column.name == "last_used_ms" else column for column in USER_SESSION.columns))
    .outerjoin_from(user_sessions, service_sessions, _IS_SERVICE)
    .where(
        _IS_USER, _SESSION_NOT_REVOKED, user_sessions.c.signed_out_ms.is_(None), user_sessions.c.expires_ms > bindparam("at_now")
    )
    .order_by(_LAST_USED.desc())
)
REVOKE_SESSION = SESSIONS.save.where(_SESSION_NOT_REVOKED)
REVOKE_BY_USER = update(user_sessions).where(_IS_USER, user_sessions.c.session_id != bindparam("at_keep"), _SESSION_NOT_REVOKED)
LAST_REVOKED = (
    select(func.max(user_sessions.c.revoked_ms))
    .outerjoin_from(user_sessions, service_sessions, _IS_SERVICE)
    .where(_IS_USER, service_sessions.c.session_id.is_(None))
)
_OVERDUE = (
    update(approvals).where(PENDING_APPROVAL, approvals.c.expires_ms > bindparam("at_ms")).values(expires_ms=bindparam("at_ms"))
)
END_REQUESTS = _OVERDUE.where(approvals.c.requester_session_id == bindparam("at_id"))
END_REQUESTS_BY_USER = _OVERDUE.where(
    approvals.c.requester_user_id == bindparam("at_user"), approvals.c.requester_session_id != bindparam("at_keep")
)
"""A request of a person's own session has no session and goes on."""
DELETE_EXPIRED = delete_batch(user_sessions, user_sessions.c.expires_ms < bindparam("at_before"), user_sessions.c.expires_ms)


class SqlUserSessionRepository(SqlEntityRepository[UserSession]):
    statements = SESSIONS

    async def find_with_membership(self, session_id: SessionId) -> tuple[UserSession, Membership] | None:
        rows = await self._session.read(FIND_WITH_MEMBERSHIP, at_id=session_id)
        if not rows:
            return None
        return USER_SESSION.from_row(rows[0]), MEMBERSHIP.from_row(rows[0][len(USER_SESSION.columns) :])

    async def list_open(self, user_id: UserId, now_ms: int) -> Sequence[UserSession]:
        return await self._list(USER_SESSION, LIST_OPEN, at_user=user_id, at_now=now_ms)

    async def record_use(self, session_id: SessionId, at_ms: int, expires_ms: int, address: str, user_agent: str) -> None:
        await self._session.write(
            SESSIONS.save, at_id=session_id, last_used_ms=at_ms, expires_ms=expires_ms, address=address, user_agent=user_agent
        )

    async def record_verification(self, session_id: SessionId, at_ms: int) -> None:
        await self._session.write(SESSIONS.save, at_id=session_id, verified_ms=at_ms)

    async def sign_out(self, session_id: SessionId, at_ms: int) -> None:
        await self._session.write(SESSIONS.save, at_id=session_id, signed_out_ms=at_ms)

    async def revoke(self, session_id: SessionId, at_ms: int) -> None:
        await self._session.write(REVOKE_SESSION, at_id=session_id, revoked_ms=at_ms)
        await self._session.write(END_REQUESTS, at_id=session_id, at_ms=at_ms)

    async def revoke_by_user(self, user_id: UserId, at_ms: int, *, keep: SessionId | None = None) -> None:
        await self._session.write(REVOKE_BY_USER, at_user=user_id, at_keep=keep or "", revoked_ms=at_ms)
        await self._session.write(END_REQUESTS_BY_USER, at_user=user_id, at_keep=keep or "", at_ms=at_ms)

    async def last_revoked_ms(self, user_id: UserId) -> int | None:
        return await self._number_or_none(LAST_REVOKED, at_user=user_id)

    async def delete_older_than(self, expires_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_EXPIRED, at_before=expires_ms, at_limit=limit)


UNLOCK_LINK = RowMapper(unlock_links, SignInUnlockLink)
GET_LINK = UNLOCK_LINK.select().where(unlock_links.c.user_id == bindparam("at_user"))
FIND_LINK = UNLOCK_LINK.select().where(unlock_links.c.token_hash == bindparam("at_hash"))
UPSERT_LINK = upsert(unlock_links, "token_hash", "issued_ms", "expires_ms", "used")


class SqlSignInUnlockLinkRepository(SqlRepository):
    async def get_for_update(self, user_id: UserId) -> SignInUnlockLink | None:
        if self._takes_locks:
            await self._session.write(LOCK_USER, at_user=user_id)
        return await self._first(UNLOCK_LINK, GET_LINK, at_user=user_id)

    async def find_by_token(self, token_hash: bytes) -> SignInUnlockLink | None:
        return await self._first(UNLOCK_LINK, FIND_LINK, at_hash=token_hash)

    async def upsert(self, link: SignInUnlockLink) -> None:
        await self._session.write(UPSERT_LINK, **UNLOCK_LINK.values(link))


PASSKEY = RowMapper(passkeys, Passkey, {"transports": JSON_TUPLE})
PASSKEYS = EntityStatements(PASSKEY, "passkey_id")

k, c = passkeys.c, used_passkey_challenges.c
FIND_BY_CREDENTIAL = PASSKEY.select().where(k.credential_id == bindparam("at_credential"))
LIST = PASSKEY.select().where(k.user_id == bindparam("at_user")).order_by(k.created_ms, k.passkey_id)
DELETE = delete(passkeys).where(k.user_id == bindparam("at_user"), k.passkey_id == bindparam("at_id")).returning(k.passkey_id)
CREDENTIAL_EXISTS = select(k.passkey_id).where(k.credential_id == bindparam("at_credential"))
USE_CHALLENGE = insert_or_ignore(used_passkey_challenges)
DELETE_CHALLENGES = delete_batch(used_passkey_challenges, c.expires_ms < bindparam("at_before"), c.expires_ms)


class SqlPasskeyRepository(SqlRepository):
    async def add(self, passkey: Passkey) -> None:
        if await self._session.read(CREDENTIAL_EXISTS, at_credential=passkey.credential_id):
            raise Conflict("This passkey is registered already.", code="PASSKEY_EXISTS")
        await self._session.write(PASSKEYS.add, **PASSKEY.values(passkey))

    async def find_by_credential(self, credential_id: bytes) -> Passkey | None:
        return await self._first(PASSKEY, FIND_BY_CREDENTIAL, at_credential=credential_id)

    async def get_for_update(self, passkey_id: PasskeyId) -> Passkey | None:
        return await self._first(PASSKEY, PASSKEYS.get[self._session.writable], at_id=passkey_id)

    async def list_by_user(self, user_id: UserId) -> Sequence[Passkey]:
        return await self._list(PASSKEY, LIST, at_user=user_id)

    async def record_use(self, passkey_id: PasskeyId, sign_count: int, at_ms: int) -> None:
        await self._session.write(PASSKEYS.save, at_id=passkey_id, sign_count=sign_count, last_used_ms=at_ms)

    async def delete(self, user_id: UserId, passkey_id: PasskeyId) -> bool:
        return bool(await self._session.write(DELETE, at_user=user_id, at_id=passkey_id))

    async def use_challenge(self, challenge: VerifiedPasskeyChallenge) -> bool:
        values = {"challenge_hash": challenge.challenge_hash, "expires_ms": challenge.expires_ms}
        return bool(await self._session.write(USE_CHALLENGE, **values))

    async def delete_challenges_older_than(self, expires_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_CHALLENGES, at_before=expires_ms, at_limit=limit)


TOTP = RowMapper(totp_secrets, TotpEnrollment)
CHALLENGE = RowMapper(login_challenges, LoginChallenge)

_USER: BindParameter[str] = bindparam("at_user")
_HASH: BindParameter[bytes] = bindparam("at_hash")

GET_TOTP = TOTP.select().where(totp_secrets.c.user_id == _USER)
HAS_TOTP = select(totp_secrets.c.user_id).where(totp_secrets.c.user_id == _USER, totp_secrets.c.confirmed_ms.is_not(None))
IS_ENABLED = HAS_TOTP.union_all(select(passkeys.c.user_id).where(passkeys.c.user_id == _USER)).limit(1)
DELETE_PASSKEYS = delete(passkeys).where(passkeys.c.user_id == _USER).returning(passkeys.c.user_id)
UPSERT_TOTP = upsert(totp_secrets, "sealed", "created_ms", "confirmed_ms", "last_step", "wrong_codes", "wrong_link_codes")
LIST_TOTP = (
    TOTP.select()
    .where(totp_secrets.c.user_id > bindparam("at_after"))
    .order_by(totp_secrets.c.user_id)
    .limit(bindparam("at_limit"))
)
REKEY_TOTP = (
    update(totp_secrets)
    .where(totp_secrets.c.user_id == _USER, totp_secrets.c.sealed == bindparam("at_sealed"))
    .returning(totp_secrets.c.user_id)
)
COUNT_TOTP = select(func.count()).select_from(totp_secrets)
DELETE_TOTP = delete(totp_secrets).where(totp_secrets.c.user_id == _USER).returning(totp_secrets.c.user_id)
ADD_CODE = insert(recovery_codes)
USE_CODE = (
    delete(recovery_codes)
    .where(recovery_codes.c.user_id == _USER, recovery_codes.c.code_hash == _HASH)
    .returning(recovery_codes.c.user_id)
)
COUNT_CODES = select(func.count()).select_from(recovery_codes).where(recovery_codes.c.user_id == _USER)
DELETE_CODES = delete(recovery_codes).where(recovery_codes.c.user_id == _USER)
ADD_CHALLENGE = insert(login_challenges)
GET_CHALLENGE = CHALLENGE.select().where(login_challenges.c.token_hash == _HASH)
DELETE_CHALLENGE = delete(login_challenges).where(login_challenges.c.token_hash == _HASH).returning(login_challenges.c.user_id)
DELETE_OLD_CHALLENGES = delete_batch(
    login_challenges, login_challenges.c.expires_ms < bindparam("at_before"), login_challenges.c.expires_ms
)


class SqlSecondFactorRepository(SqlRepository):
    async def is_enabled(self, user_id: UserId) -> bool:
        return bool(await self._session.read(IS_ENABLED, at_user=user_id))

    async def has_totp(self, user_id: UserId) -> bool:
        return bool(await self._session.read(HAS_TOTP, at_user=user_id))

    async def delete_totp(self, user_id: UserId) -> bool:
        return bool(await self._session.write(DELETE_TOTP, at_user=user_id))

    async def get_totp_for_update(self, user_id: UserId) -> TotpEnrollment | None:
        if self._takes_locks:
            await self._session.write(LOCK_USER, at_user=user_id)
        return await self._first(TOTP, GET_TOTP, at_user=user_id)

    async def upsert_totp(self, secret: TotpEnrollment) -> None:
        await self._session.write(UPSERT_TOTP, **TOTP.values(secret))

    async def list_totp_page(self, after: UserId | None, limit: int) -> Sequence[TotpEnrollment]:
        return await self._list(TOTP, LIST_TOTP, at_after=after or "", at_limit=limit)

    async def rekey_totp(self, user_id: UserId, before: bytes, sealed: bytes) -> int:
        return await self._count_changed(REKEY_TOTP, at_user=user_id, at_sealed=before, sealed=sealed)

    async def count_totp(self) -> int:
        return await self._number(COUNT_TOTP)

    async def replace_recovery_codes(self, user_id: UserId, code_hashes: Sequence[bytes]) -> None:
        await self._session.write(DELETE_CODES, at_user=user_id)
        await self._session.execute_many(ADD_CODE, [{"user_id": user_id, "code_hash": one} for one in code_hashes])

    async def use_recovery_code(self, user_id: UserId, code_hash: bytes) -> bool:
        return bool(await self._session.write(USE_CODE, at_user=user_id, at_hash=code_hash))

    async def count_recovery_codes(self, user_id: UserId) -> int:
        return await self._number(COUNT_CODES, at_user=user_id)

    async def delete_all(self, user_id: UserId) -> bool:
        await self._session.write(DELETE_CODES, at_user=user_id)
        had_passkeys = bool(await self._session.write(DELETE_PASSKEYS, at_user=user_id))
        return await self.delete_totp(user_id) or had_passkeys

    async def add_challenge(self, challenge: LoginChallenge) -> None:
        await self._session.write(ADD_CHALLENGE, **CHALLENGE.values(challenge))

    async def get_challenge(self, token_hash: bytes) -> LoginChallenge | None:
        return await self._first(CHALLENGE, GET_CHALLENGE, at_hash=token_hash)

    async def delete_challenge(self, token_hash: bytes) -> bool:
        return bool(await self._session.write(DELETE_CHALLENGE, at_hash=token_hash))

    async def delete_challenges_older_than(self, expires_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_OLD_CHALLENGES, at_before=expires_ms, at_limit=limit)


IDENTITY = RowMapper(external_identities, ExternalIdentity)
_OF_ISSUER = external_identities.c.issuer == bindparam("at_issuer")

GET = IDENTITY.select().where(_OF_ISSUER, external_identities.c.subject == bindparam("at_subject"))
FIND_BY_USER = IDENTITY.select().where(_OF_ISSUER, external_identities.c.user_id == bindparam("at_user"))
UPSERT = upsert(external_identities, "user_id", "last_used_ms")
MARK_STATE = insert_or_ignore(used_sign_in_states)
DELETE_STATES = delete_batch(
    used_sign_in_states, used_sign_in_states.c.expires_ms < bindparam("at_before"), used_sign_in_states.c.expires_ms
)


class SqlExternalIdentityRepository(SqlRepository):
    async def get(self, issuer: str, subject: str) -> ExternalIdentity | None:
        return await self._first(IDENTITY, GET, at_issuer=issuer, at_subject=subject)

    async def find_by_user(self, user_id: UserId, issuer: str) -> ExternalIdentity | None:
        return await self._first(IDENTITY, FIND_BY_USER, at_issuer=issuer, at_user=user_id)

    async def upsert(self, identity: ExternalIdentity) -> None:
        with unique_violation_as(identity_taken_error):
            await self._session.write(UPSERT, **IDENTITY.values(identity))

    async def mark_state_used(self, state_hash: bytes, expires_ms: int) -> bool:
        rows = await self._session.write(MARK_STATE, state_hash=state_hash, expires_ms=expires_ms)
        return bool(rows)

    async def delete_states_older_than(self, expires_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_STATES, at_before=expires_ms, at_limit=limit)
