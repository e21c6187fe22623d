"""Authenticator apps, recovery codes, and sign-ins that wait for a second factor."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BindParameter, bindparam, delete, func, insert, select, update

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.repositories.login_tokens_and_failures import LOCK_USER
from adapters.storage.sql.row_mapper import RowMapper
from adapters.storage.sql.statement_builders import delete_batch, upsert
from adapters.storage.sql.tables import login_challenges, passkeys, recovery_codes, totp_secrets
from domain.kernel.ids import UserId
from domain.sign_in.model import LoginChallenge, TotpEnrollment

TOTP = RowMapper(totp_secrets, TotpEnrollment)
CHALLENGE = RowMapper(login_challenges, LoginChallenge)

_USER: BindParameter[str] = bindparam("at_user")
_HASH: BindParameter[bytes] = bindparam("at_hash")

GET_TOTP = TOTP.select().where(totp_secrets.c.user_id == _USER)
HAS_TOTP = select(totp_secrets.c.user_id).where(totp_secrets.c.user_id == _USER, totp_secrets.c.confirmed_ms.is_not(None))
IS_ENABLED = HAS_TOTP.union_all(select(passkeys.c.user_id).where(passkeys.c.user_id == _USER)).limit(1)
DELETE_PASSKEYS = delete(passkeys).where(passkeys.c.user_id == _USER).returning(passkeys.c.user_id)
UPSERT_TOTP = upsert(totp_secrets, "sealed", "created_ms", "confirmed_ms", "last_step")
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
