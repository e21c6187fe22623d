"""Passkeys, and the challenges that were used and have not expired."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, select

from adapters.storage.sql.entity_repository import EntityStatements, SqlRepository
from adapters.storage.sql.row_mapper import JSON_TUPLE, RowMapper
from adapters.storage.sql.statement_builders import delete_batch, insert_or_ignore
from adapters.storage.sql.tables import passkeys, used_passkey_challenges
from domain.kernel.errors import Conflict
from domain.kernel.ids import PasskeyId, UserId
from domain.sign_in.model import Passkey, VerifiedPasskeyChallenge

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
