"""Ports of invitations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.accounts.model import Invitation
from domain.kernel.ids import AccountId, InvitationId


class InvitationRepository(Protocol):
    async def add(self, invitation: Invitation) -> None:
        """Raises Conflict `INVITATION_EXISTS` when the account has one for this address."""

    async def get_for_update(self, account_id: AccountId, invitation_id: InvitationId) -> Invitation | None:
        """Locks the invitation until the write transaction ends."""

    async def find_by_token(self, token_hash: bytes) -> Invitation | None: ...

    async def find_by_email(self, account_id: AccountId, email: str) -> Invitation | None: ...

    async def list_by_account(self, account_id: AccountId) -> Sequence[Invitation]:
        """Oldest first."""

    async def save(self, invitation: Invitation) -> None: ...

    async def delete(self, invitation_id: InvitationId) -> None: ...

    async def delete_older_than(self, expires_ms: int, limit: int) -> int: ...


class HasInvitations(Protocol):
    @property
    def invitations(self) -> InvitationRepository: ...
