"""The sessions of a user: refresh, logout, list and end them.

A refresh token is used once and replaced by the next one of its session. A second use means that two parties hold it, so the
whole session is revoked. After a logout the session cannot be refreshed, and its access token is valid until it expires. A
session that is revoked ends at once: each call reads its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.accounts.model import Account, MembershipWithUser
from domain.accounts.ports import HasAccounts, HasMemberships, HasProjects, HasUsers
from domain.accounts.session_and_sign_in_model import ClientInfo, RefreshToken, UserSession
from domain.accounts.sign_in_ports import HasRefreshTokens, HasUserSessions
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.domain_event import DomainEvent
from domain.kernel.errors import NotFound, Unauthenticated
from domain.kernel.ids import SessionId
from domain.kernel.unit_of_work import Transaction, UnitOfWork
from domain.sign_in.session_revocation import revoke_session, revoke_user_sessions
from domain.sign_in.session_token_issuer import SessionTokenIssuer, TokenPair


class UserSessionTx(
    Transaction, HasAccounts, HasMemberships, HasProjects, HasRefreshTokens, HasUsers, HasUserSessions, Protocol
): ...


@dataclass(frozen=True, slots=True)
class SignedInProfile:
    member: MembershipWithUser
    account: Account
    device_count: int


class UserSessionService:
    def __init__(self, *, uow: UnitOfWork[UserSessionTx], clock: Clock, issuer: SessionTokenIssuer) -> None:
        self._uow = uow
        self._clock = clock
        self._issuer = issuer

    async def refresh(self, refresh_token: str, *, client: ClientInfo) -> TokenPair:
        """Raises Unauthenticated; `TOKEN_EXPIRED` when only its time is over."""
        now_ms = self._clock.now_ms()
        token_hash = self._issuer.hash(refresh_token)
        error = Unauthenticated("This refresh token is no longer valid. Sign in again.")
        async with self._uow.write(caller=None) as tx:
            token = await _get_token_for_update(tx, token_hash)
            if token is None or token.revoked_ms is not None:
                raise error
            membership = await tx.memberships.get(token.membership_id)
            if membership is None:
                raise error
            if token.spent_ms is None and now_ms >= token.expires_ms:
                raise Unauthenticated("This refresh token has expired. Sign in again.", code="TOKEN_EXPIRED")
            if await tx.refresh_tokens.mark_spent(token_hash, now_ms):
                return await self._issuer.renew(tx, membership, token.family, client, now_ms)
            await revoke_session(tx, token.family, now_ms)
            description = "A used refresh token was presented again; its session was ended"
            caller = membership.to_session(client.address)
            await tx.emit(DomainEvent.from_caller(caller, "session_revoked", description, now_ms))
        raise error

    async def logout(self, refresh_token: str, *, client: ClientInfo) -> None:
        """End the token's session; its access token lives on until it expires. An unknown token is not an error."""
        now_ms = self._clock.now_ms()
        async with self._uow.write(caller=None) as tx:
            token = await _get_token_for_update(tx, self._issuer.hash(refresh_token))
            if token is None or token.revoked_ms is not None:
                return
            await tx.refresh_tokens.revoke_family(token.family, now_ms)
            await tx.user_sessions.sign_out(token.family, now_ms)
            membership = await tx.memberships.get(token.membership_id)
            if membership is not None:
                caller = membership.to_session(client.address)
                await tx.emit(DomainEvent.from_caller(caller, "logout", "Signed out", now_ms))

    async def list_sessions(self, caller: SessionCaller) -> Sequence[UserSession]:
        """The caller's own open sessions, the last used first."""
        async with self._uow.read() as tx:
            return await tx.user_sessions.list_open(caller.user_id, self._clock.now_ms())

    async def end_session(self, caller: SessionCaller, session_id: str) -> None:
        """Sign out one of the caller's own sessions at once. Raises NotFound."""
        now_ms = self._clock.now_ms()
        async with self._uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            session = await tx.user_sessions.get_for_update(SessionId(session_id))
            if session is None or session.user_id != caller.user_id or not session.is_open(now_ms):
                raise NotFound.for_resource("session", session_id)
            await revoke_session(tx, session.session_id, now_ms)
            await tx.emit(DomainEvent.from_caller(caller, "session_revoked", "A session was signed out", now_ms))

    async def end_other_sessions(self, caller: SessionCaller) -> None:
        """Sign out all sessions of the caller but the present one."""
        now_ms = self._clock.now_ms()
        async with self._uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            await tx.users.get_for_update(caller.user_id)
            await revoke_user_sessions(tx, caller.user_id, now_ms, keep=caller.session_id)
            await tx.emit(DomainEvent.from_caller(caller, "session_revoked", "All other sessions were signed out", now_ms))

    async def get_profile(self, caller: SessionCaller) -> SignedInProfile:
        async with self._uow.read() as tx:
            user = await tx.users.get(caller.user_id)
            membership = await tx.memberships.get(caller.membership_id)
            account = await tx.accounts.get(caller.account_id)
            projects = await tx.projects.list_with_device_counts(caller.account_id)
        if user is None or membership is None or account is None:
            raise Unauthenticated("This user is no longer a member of the account.")
        return SignedInProfile(MembershipWithUser(membership, user), account, sum(count for _, count in projects))


async def _get_token_for_update(tx: UserSessionTx, token_hash: bytes) -> RefreshToken | None:
    """Read under a lock on the session and the user: a token issued concurrently would survive the revocation of its family.

    The session first, as in every transaction for a caller: there its row is locked before any other."""
    token = await tx.refresh_tokens.get(token_hash)
    if token is None:
        return None
    await tx.user_sessions.get_for_update(token.family)
    if await tx.users.get_for_update(token.user_id) is None:
        return None
    return await tx.refresh_tokens.get(token_hash)
