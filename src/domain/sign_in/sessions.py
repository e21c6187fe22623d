"""The sessions of a user: open, refresh, list and end them.

A session is the chain of refresh tokens that follow from one sign-in (their family). A refresh token is used once and replaced by
the next one of its session. A second use means that two parties hold it, so the whole session is revoked. After a logout the
session cannot be refreshed, and its access token is valid until it expires. A session that is revoked ends at once, on every
instance: each call reads its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from domain.accounts.model import Account, Membership, MembershipWithUser
from domain.accounts.policy import (
    ACCESS_TOKEN_TTL_MS,
    REFRESH_TOKEN_LENGTH,
    REFRESH_TOKEN_TTL_MS,
    SESSION_MAX_MS,
    clean_user_agent,
)
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import NotFound, Unauthenticated
from domain.kernel.ids import IdAndSecretGenerator, IdPrefix, SessionId, UserId
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.model import ClientInfo, RefreshToken, UserSession
from domain.sign_in.policy import HmacKnownBrowserTokenCodec
from domain.sign_in.ports import AccessTokenCodec, SignInTx, TokenHasher
from domain.sign_in.presence import require_fresh_proof


@dataclass(frozen=True, slots=True)
class TokenPair:
    access_token: str
    refresh_token: str
    expires_in_s: int = ACCESS_TOKEN_TTL_MS // SECOND_MS


@dataclass(frozen=True, slots=True)
class OpenedSession:
    tokens: TokenPair
    member: MembershipWithUser
    account: Account
    device_tokens: str = field(repr=False)
    """What the device shows at its next login (`policy.py`)."""


@dataclass(frozen=True, slots=True)
class SignedInProfile:
    member: MembershipWithUser
    account: Account
    device_count: int


@service
class UserSessionService:
    uow: UnitOfWork[SignInTx]
    clock: Clock
    issuer: SessionTokenIssuer

    async def refresh(self, refresh_token: str, *, client: ClientInfo) -> TokenPair:
        """Raises Unauthenticated; `TOKEN_EXPIRED` when only its time is over."""
        now_ms = self.clock.now_ms()
        token_hash = self.issuer.hash(refresh_token)
        error = Unauthenticated("This refresh token is no longer valid. Sign in again.")
        async with self.uow.write(caller=None) as tx:
            token = await _get_token_for_update(tx, token_hash)
            if token is None or token.revoked_ms is not None:
                raise error
            membership = await tx.memberships.get(token.membership_id)
            if membership is None:
                raise error
            if token.spent_ms is None and now_ms >= token.expires_ms:
                raise Unauthenticated("This refresh token has expired. Sign in again.", code="TOKEN_EXPIRED")
            if await tx.refresh_tokens.mark_spent(token_hash, now_ms):
                return await self.issuer.renew(tx, membership, token.family, client, now_ms)
            await revoke_session(tx, token.family, now_ms)
            description = "A used refresh token was presented again; its session was ended"
            caller = membership.to_session(client.address)
            tx.emit(event_of(caller, "session_revoked", description, now_ms))
        raise error

    async def logout(self, refresh_token: str, *, client: ClientInfo) -> None:
        """End the token's session; its access token lives on until it expires. An unknown token is not an error."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            token = await _get_token_for_update(tx, self.issuer.hash(refresh_token))
            if token is None or token.revoked_ms is not None:
                return
            await tx.refresh_tokens.revoke_family(token.family, now_ms)
            await tx.user_sessions.sign_out(token.family, now_ms)
            membership = await tx.memberships.get(token.membership_id)
            if membership is not None:
                caller = membership.to_session(client.address)
                tx.emit(event_of(caller, "logout", "Signed out", now_ms))

    async def list_sessions(self, caller: SessionCaller) -> Sequence[UserSession]:
        """The caller's own open sessions, the last used first."""
        async with self.uow.read() as tx:
            return await tx.user_sessions.list_open(caller.user_id, self.clock.now_ms())

    async def get_session(self, caller: SessionCaller, session_id: str) -> UserSession:
        """One of the caller's own open sessions. Raises NotFound."""
        async with self.uow.read() as tx:
            return await _get_own(tx, caller, session_id, self.clock.now_ms())

    async def end_session(self, caller: SessionCaller, session_id: str) -> None:
        """Sign out one of the caller's own sessions at once. Raises NotFound."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            session = await _get_own(tx, caller, session_id, now_ms)
            await revoke_session(tx, session.session_id, now_ms)
            tx.emit(event_of(caller, "session_revoked", "A session was signed out", now_ms))

    async def end_other_sessions(self, caller: SessionCaller) -> None:
        """Sign out all sessions of the caller but the present one, and suspend the caller's channels. So it silences them: a
        thief of the session may not. Raises PermissionDenied `STEP_UP_REQUIRED`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            await require_fresh_proof(tx, caller, now_ms)
            await tx.users.get_for_update(caller.user_id)
            await cut_off_user(tx, caller.user_id, now_ms, keep=caller.session_id)
            tx.emit(event_of(caller, "session_revoked", "All other sessions were signed out", now_ms))

    async def get_profile(self, caller: SessionCaller) -> SignedInProfile:
        async with self.uow.read() as tx:
            user = await tx.users.get(caller.user_id)
            membership = await tx.memberships.get(caller.membership_id)
            account = await tx.accounts.get(caller.account_id)
            projects = await tx.projects.list_with_device_counts(caller.account_id)
        if user is None or membership is None or account is None:
            raise Unauthenticated("This user is no longer a member of the account.")
        return SignedInProfile(MembershipWithUser(membership, user), account, sum(count for _, count in projects))


async def _get_token_for_update(tx: SignInTx, token_hash: bytes) -> RefreshToken | None:
    """Read under a lock on the session and the user: a token issued concurrently would survive the revocation of its family.

    The session first, as in every transaction for a caller: there its row is locked before any other."""
    token = await tx.refresh_tokens.get(token_hash)
    if token is None:
        return None
    await tx.user_sessions.get_for_update(token.family)
    if await tx.users.get_for_update(token.user_id) is None:
        return None
    return await tx.refresh_tokens.get(token_hash)


@service
class SessionOpener:
    """Opens a session for a user whose sign-in is complete, whichever way the user signed in, and records it."""

    issuer: SessionTokenIssuer
    devices: HmacKnownBrowserTokenCodec

    async def open(
        self,
        tx: SignInTx,
        member: MembershipWithUser,
        account: Account,
        client: ClientInfo,
        now_ms: int,
        *,
        how: str = "",
        ends_ms: int | None = None,
        provider_factor_ms: int | None = None,
    ) -> OpenedSession:
        """`how`: what the log says of the way, such as ` with a passkey`. The last two are those of `UserSession`."""
        user, membership = member.user, member.membership
        tokens = await self.issuer.open_session(
            tx, membership, client, now_ms, ends_ms=ends_ms, provider_factor_ms=provider_factor_ms
        )
        caller = membership.to_session(client.address)
        tx.emit(event_of(caller, "login", f"{user.name} signed in{how}", now_ms))
        return OpenedSession(tokens, member, account, self.devices.add_token(client.device_tokens, user.user_id))


@service
class SessionTokenIssuer:
    """Issues the tokens of a session: its next refresh token, and an access token that names the session, so that ending the
    session ends it too. `max_ms`: after so long the person signs in again, however often the session was refreshed."""

    ids: IdAndSecretGenerator
    tokens: AccessTokenCodec
    digest: TokenHasher
    max_ms: int = SESSION_MAX_MS

    async def open_session(
        self,
        tx: SignInTx,
        membership: Membership,
        client: ClientInfo,
        now_ms: int,
        *,
        ends_ms: int | None = None,
        provider_factor_ms: int | None = None,
    ) -> TokenPair:
        """`ends_ms` and `provider_factor_ms` are those of `UserSession`."""
        session = replace(
            self._new_session(membership, client, now_ms),
            expires_ms=self._expiry(now_ms, now_ms, ends_ms),
            ends_ms=ends_ms,
            provider_factor_ms=provider_factor_ms,
        )
        await tx.user_sessions.add(session)
        return await self._issue(tx, membership, session.session_id, now_ms, session.expires_ms)

    async def issue_access_token(self, tx: SignInTx, membership: Membership, client: ClientInfo, now_ms: int) -> str:
        """An access token without a refresh token: its session ends with it."""
        session = replace(
            self._new_session(membership, client, now_ms), expires_ms=now_ms + ACCESS_TOKEN_TTL_MS, signed_out_ms=now_ms
        )
        await tx.user_sessions.add(session)
        return self.tokens.issue(membership, session.session_id, now_ms)

    def _new_session(self, membership: Membership, client: ClientInfo, now_ms: int) -> UserSession:
        return UserSession(
            session_id=SessionId(self.ids.new_id(IdPrefix.SESSION)),
            user_id=membership.user_id,
            membership_id=membership.membership_id,
            created_ms=now_ms,
            last_used_ms=now_ms,
            expires_ms=now_ms + REFRESH_TOKEN_TTL_MS,
            address=client.address,
            user_agent=clean_user_agent(client.user_agent),
            verified_ms=now_ms,
        )

    async def renew(
        self, tx: SignInTx, membership: Membership, session_id: SessionId, client: ClientInfo, now_ms: int
    ) -> TokenPair:
        """The next tokens of a session, which also records its last use."""
        session = await tx.user_sessions.get(session_id)
        began_ms, ends_ms = (now_ms, None) if session is None else (session.created_ms, session.ends_ms)
        expires_ms = self._expiry(now_ms, began_ms, ends_ms)
        user_agent = clean_user_agent(client.user_agent)
        await tx.user_sessions.record_use(session_id, now_ms, expires_ms, client.address, user_agent)
        return await self._issue(tx, membership, session_id, now_ms, expires_ms)

    async def _issue(
        self, tx: SignInTx, membership: Membership, session_id: SessionId, now_ms: int, expires_ms: int
    ) -> TokenPair:
        refresh_token = self.ids.random_alphanumeric(REFRESH_TOKEN_LENGTH)
        await tx.refresh_tokens.add(
            RefreshToken(
                token_hash=self.hash(refresh_token),
                family=session_id,
                user_id=membership.user_id,
                membership_id=membership.membership_id,
                issued_ms=now_ms,
                expires_ms=expires_ms,
            )
        )
        return TokenPair(self.tokens.issue(membership, session_id, now_ms), refresh_token)

    def _expiry(self, now_ms: int, began_ms: int, ends_ms: int | None) -> int:
        """When a refresh token expires that is issued now, of a session since `began_ms`."""
        expires_ms = min(now_ms + REFRESH_TOKEN_TTL_MS, began_ms + self.max_ms)
        return expires_ms if ends_ms is None else min(expires_ms, ends_ms)

    def hash(self, refresh_token: str) -> bytes:
        """The form in which a refresh token is stored."""
        return self.digest.sha256(refresh_token)


async def _get_own(tx: SignInTx, caller: SessionCaller, session_id: str, now_ms: int) -> UserSession:
    session = await tx.user_sessions.get_for_update(SessionId(session_id))
    if session is None or session.user_id != caller.user_id or not session.is_open(now_ms):
        raise NotFound.for_resource("session", session_id)
    return session


async def revoke_session(tx: SignInTx, session_id: SessionId, now_ms: int) -> None:
    await tx.refresh_tokens.revoke_family(session_id, now_ms)
    await tx.user_sessions.revoke(session_id, now_ms)


async def revoke_user_sessions(tx: SignInTx, user_id: UserId, now_ms: int, *, keep: SessionId | None = None) -> None:
    """`keep`: the one session that goes on."""
    await tx.refresh_tokens.revoke_by_user(user_id, now_ms, keep=keep)
    await tx.user_sessions.revoke_by_user(user_id, now_ms, keep=keep)


async def cut_off_user(tx: SignInTx, user_id: UserId, now_ms: int, *, keep: SessionId | None = None) -> None:
    """Somebody else may have been signed in as this user: all sessions end, and no channel is told anything before the user has
    confirmed it again. Links for approval that were sent before are void already. `keep`: the one session that goes on."""
    await revoke_user_sessions(tx, user_id, now_ms, keep=keep)
    await tx.notification_channels.suspend_by_user(user_id, now_ms)
