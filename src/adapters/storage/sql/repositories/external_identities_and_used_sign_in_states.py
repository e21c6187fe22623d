"""Identities of users at identity providers, and the states of sign-ins that were used."""

from __future__ import annotations

from sqlalchemy import bindparam

from adapters.storage.conflict_error_factories import identity_taken_error
from adapters.storage.sql.entity_repository import SqlRepository, unique_violation_as
from adapters.storage.sql.row_mapper import RowMapper
from adapters.storage.sql.statement_builders import delete_batch, insert_or_ignore, upsert
from adapters.storage.sql.tables import external_identities, used_sign_in_states
from domain.kernel.ids import UserId
from domain.oidc.ports import ExternalIdentity

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
