"""Identities of users at identity providers."""

from __future__ import annotations

from adapters.storage.errors import identity_taken_error
from domain.kernel.ids import UserId
from domain.oidc.ports import ExternalIdentity
from support.memory_storage.tables import Database, Table

IDENTITIES: Table[tuple[str, str], ExternalIdentity] = Table("external_identities")
USED_STATES: Table[bytes, int] = Table("used_sign_in_states")


class MemoryExternalIdentityRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, issuer: str, subject: str) -> ExternalIdentity | None:
        return self._database.rows(IDENTITIES).get((issuer, subject))

    async def find_by_user(self, user_id: UserId, issuer: str) -> ExternalIdentity | None:
        rows = self._database.rows(IDENTITIES).values()
        return next((one for one in rows if (one.user_id, one.issuer) == (user_id, issuer)), None)

    async def upsert(self, identity: ExternalIdentity) -> None:
        taken = await self.find_by_user(identity.user_id, identity.issuer)
        if taken is not None and taken.subject != identity.subject:
            raise identity_taken_error()
        self._database.writable_rows(IDENTITIES)[(identity.issuer, identity.subject)] = identity

    async def mark_state_used(self, state_hash: bytes, expires_ms: int) -> bool:
        rows = self._database.writable_rows(USED_STATES)
        if state_hash in rows:
            return False
        rows[state_hash] = expires_ms
        return True

    async def delete_states_older_than(self, expires_ms: int, limit: int) -> int:
        old = [key for key, ends_ms in self._database.rows(USED_STATES).items() if ends_ms < expires_ms]
        return self._database.delete(USED_STATES, old[:limit])
