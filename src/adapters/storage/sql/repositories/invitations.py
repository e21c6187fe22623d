"""Invitations to an account."""

from __future__ import annotations

from sqlalchemy import bindparam

from adapters.storage.conflict_error_factories import invitation_exists_error
from adapters.storage.sql.entity_repository import AccountEntityStatements, SqlAccountEntityRepository
from adapters.storage.sql.row_mapper import RowMapper, enum_converter
from adapters.storage.sql.statement_builders import delete_batch
from adapters.storage.sql.tables import invitations
from domain.accounts.model import Invitation
from domain.kernel.caller import Role
from domain.kernel.ids import AccountId

INVITATION = RowMapper(invitations, Invitation, {"role": enum_converter(Role)})

INVITATIONS = AccountEntityStatements(
    INVITATION, "invitation_id", unchanged=("account_id", "email"), exists_error=lambda _: invitation_exists_error()
)
FIND_BY_TOKEN = INVITATION.select().where(invitations.c.token_hash == bindparam("at_hash"))
FIND_BY_EMAIL = INVITATION.select().where(INVITATIONS.in_account, invitations.c.email == bindparam("at_email"))
DELETE_EXPIRED = delete_batch(invitations, invitations.c.expires_ms < bindparam("at_before"), invitations.c.expires_ms)


class SqlInvitationRepository(SqlAccountEntityRepository[Invitation]):
    statements = INVITATIONS

    async def find_by_token(self, token_hash: bytes) -> Invitation | None:
        return await self._first(INVITATION, FIND_BY_TOKEN, at_hash=token_hash)

    async def find_by_email(self, account_id: AccountId, email: str) -> Invitation | None:
        return await self._first(INVITATION, FIND_BY_EMAIL, at_account=account_id, at_email=email)

    async def delete_older_than(self, expires_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_EXPIRED, at_before=expires_ms, at_limit=limit)
