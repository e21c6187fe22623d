"""What the team part keeps: invitations and the tokens of service sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from domain.accounts.model import Invitation
from domain.kernel.ids import AccountId, InvitationId, SessionId
from domain.sign_in.model import ServiceSessionToken
from domain.sign_in.ports import SignInTx


class ServiceSessionTokenRepository(Protocol):
    async def add(self, session: ServiceSessionToken) -> None: ...

    async def find_by_hash(self, secret_hash: bytes) -> ServiceSessionToken | None: ...

    async def find_open_for_share(self, session_id: SessionId, now_ms: int) -> ServiceSessionToken | None:
        """None if it has expired or was revoked; it stays open until the transaction ends."""

    async def list_open(self, account_id: AccountId, now_ms: int) -> Sequence[ServiceSessionToken]:
        """Those that are neither expired nor revoked, oldest first."""

    async def update_last_used(self, used: Mapping[SessionId, int]) -> None:
        """Set `last_used_ms` of many; unknown ones are ignored, and none goes back."""


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


class TeamTx(SignInTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def invitations(self) -> InvitationRepository: ...

    @property
    def service_sessions(self) -> ServiceSessionTokenRepository: ...
