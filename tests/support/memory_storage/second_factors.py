"""Authenticator apps, recovery codes, and sign-ins that wait for a second factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from domain.kernel.ids import UserId
from domain.sign_in.model import LoginChallenge, TotpEnrollment
from support.memory_storage.passkeys import PASSKEYS, MemoryPasskeyRepository
from support.memory_storage.tables import Database, Table

TOTP_SECRETS: Table[UserId, TotpEnrollment] = Table("totp_secrets")
RECOVERY_CODES: Table[tuple[UserId, bytes], bool] = Table("recovery_codes")
CHALLENGES: Table[bytes, LoginChallenge] = Table("login_challenges")


class MemorySecondFactorRepository:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._passkeys = MemoryPasskeyRepository(database)

    async def is_enabled(self, user_id: UserId) -> bool:
        return await self.has_totp(user_id) or bool(await self._passkeys.list_by_user(user_id))

    async def delete_totp(self, user_id: UserId) -> bool:
        return self._database.delete(TOTP_SECRETS, [user_id]) == 1

    async def has_totp(self, user_id: UserId) -> bool:
        secret = self._database.rows(TOTP_SECRETS).get(user_id)
        return secret is not None and secret.confirmed_ms is not None

    async def get_totp_for_update(self, user_id: UserId) -> TotpEnrollment | None:
        return self._database.rows(TOTP_SECRETS).get(user_id)

    async def upsert_totp(self, secret: TotpEnrollment) -> None:
        self._database.writable_rows(TOTP_SECRETS)[secret.user_id] = secret

    async def list_totp_page(self, after: UserId | None, limit: int) -> list[TotpEnrollment]:
        found = [one for one in self._database.rows(TOTP_SECRETS).values() if one.user_id > (after or "")]
        return sorted(found, key=lambda one: one.user_id)[:limit]

    async def rekey_totp(self, user_id: UserId, before: bytes, sealed: bytes) -> int:
        rows = self._database.writable_rows(TOTP_SECRETS)
        if user_id not in rows or rows[user_id].sealed != before:
            return 0
        rows[user_id] = replace(rows[user_id], sealed=sealed)
        return 1

    async def count_totp(self) -> int:
        return len(self._database.rows(TOTP_SECRETS))

    async def replace_recovery_codes(self, user_id: UserId, code_hashes: Sequence[bytes]) -> None:
        rows = self._database.writable_rows(RECOVERY_CODES)
        for key in [key for key in rows if key[0] == user_id]:
            del rows[key]
        rows.update({(user_id, one): True for one in code_hashes})

    async def use_recovery_code(self, user_id: UserId, code_hash: bytes) -> bool:
        return self._database.delete(RECOVERY_CODES, [(user_id, code_hash)]) == 1

    async def count_recovery_codes(self, user_id: UserId) -> int:
        return sum(key[0] == user_id for key in self._database.rows(RECOVERY_CODES))

    async def delete_all(self, user_id: UserId) -> bool:
        await self.replace_recovery_codes(user_id, [])
        own = [one.passkey_id for one in await self._passkeys.list_by_user(user_id)]
        deleted = self._database.delete(PASSKEYS, own)
        return await self.delete_totp(user_id) or deleted > 0

    async def add_challenge(self, challenge: LoginChallenge) -> None:
        self._database.writable_rows(CHALLENGES)[challenge.token_hash] = challenge

    async def get_challenge(self, token_hash: bytes) -> LoginChallenge | None:
        return self._database.rows(CHALLENGES).get(token_hash)

    async def delete_challenge(self, token_hash: bytes) -> bool:
        return self._database.delete(CHALLENGES, [token_hash]) == 1

    async def delete_challenges_older_than(self, expires_ms: int, limit: int) -> int:
        old = [key for key, one in self._database.rows(CHALLENGES).items() if one.expires_ms < expires_ms]
        return self._database.delete(CHALLENGES, old[:limit])
