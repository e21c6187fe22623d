"""Invitations to an account."""

from __future__ import annotations

from adapters.storage.errors import invitation_exists_error
from domain.accounts.model import Invitation
from domain.kernel.ids import AccountId, InvitationId
from support.memory_storage.tables import Database, Table

INVITATIONS: Table[InvitationId, Invitation] = Table("invitations")


class MemoryInvitationRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, invitation: Invitation) -> None:
        if await self.find_by_email(invitation.account_id, invitation.email) is not None:
            raise invitation_exists_error()
        self._database.writable_rows(INVITATIONS)[invitation.invitation_id] = invitation

    async def get_for_update(self, account_id: AccountId, invitation_id: InvitationId) -> Invitation | None:
        found = self._database.rows(INVITATIONS).get(invitation_id)
        return found if found is not None and found.account_id == account_id else None

    async def find_by_token(self, token_hash: bytes) -> Invitation | None:
        return next((one for one in self._database.rows(INVITATIONS).values() if one.token_hash == token_hash), None)

    async def find_by_email(self, account_id: AccountId, email: str) -> Invitation | None:
        return next((one for one in await self.list_by_account(account_id) if one.email == email), None)

    async def list_by_account(self, account_id: AccountId) -> list[Invitation]:
        return [one for one in self._database.rows(INVITATIONS).values() if one.account_id == account_id]

    async def save(self, invitation: Invitation) -> None:
        rows = self._database.writable_rows(INVITATIONS)
        if invitation.invitation_id in rows:
            rows[invitation.invitation_id] = invitation

    async def delete(self, invitation_id: InvitationId) -> None:
        self._database.delete(INVITATIONS, [invitation_id])

    async def delete_older_than(self, expires_ms: int, limit: int) -> int:
        old = [key for key, one in self._database.rows(INVITATIONS).items() if one.expires_ms < expires_ms]
        return self._database.delete(INVITATIONS, old[:limit])
