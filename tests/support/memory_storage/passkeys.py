"""Passkeys and used challenges in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from domain.kernel.errors import Conflict
from domain.kernel.ids import PasskeyId, UserId
from domain.sign_in.model import Passkey, VerifiedPasskeyChallenge
from support.memory_storage.tables import Database, Table

PASSKEYS: Table[PasskeyId, Passkey] = Table("passkeys")
USED_CHALLENGES: Table[bytes, VerifiedPasskeyChallenge] = Table("used_passkey_challenges")


class MemoryPasskeyRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, passkey: Passkey) -> None:
        if await self.find_by_credential(passkey.credential_id) is not None:
            raise Conflict("This passkey is registered already.", code="PASSKEY_EXISTS")
        self._database.writable_rows(PASSKEYS)[passkey.passkey_id] = passkey

    async def find_by_credential(self, credential_id: bytes) -> Passkey | None:
        found = (one for one in self._database.rows(PASSKEYS).values() if one.credential_id == credential_id)
        return next(found, None)

    async def get_for_update(self, passkey_id: PasskeyId) -> Passkey | None:
        return self._database.rows(PASSKEYS).get(passkey_id)

    async def list_by_user(self, user_id: UserId) -> Sequence[Passkey]:
        own = [one for one in self._database.rows(PASSKEYS).values() if one.user_id == user_id]
        return sorted(own, key=lambda one: (one.created_ms, one.passkey_id))

    async def record_use(self, passkey_id: PasskeyId, sign_count: int, at_ms: int) -> None:
        rows = self._database.writable_rows(PASSKEYS)
        rows[passkey_id] = replace(rows[passkey_id], sign_count=sign_count, last_used_ms=at_ms)

    async def delete(self, user_id: UserId, passkey_id: PasskeyId) -> bool:
        own = [one.passkey_id for one in await self.list_by_user(user_id) if one.passkey_id == passkey_id]
        return self._database.delete(PASSKEYS, own) == 1

    async def use_challenge(self, challenge: VerifiedPasskeyChallenge) -> bool:
        if challenge.challenge_hash in self._database.rows(USED_CHALLENGES):
            return False
        self._database.writable_rows(USED_CHALLENGES)[challenge.challenge_hash] = challenge
        return True

    async def delete_challenges_older_than(self, expires_ms: int, limit: int) -> int:
        old = [key for key, one in self._database.rows(USED_CHALLENGES).items() if one.expires_ms < expires_ms]
        return self._database.delete(USED_CHALLENGES, old[:limit])
