"""Opens a session at sign-in and issues its tokens.

A session is the chain of refresh tokens that follow from one sign-in (their family). Every access token names its session, so
that ending the session ends the access tokens too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.accounts.model import Membership
from domain.accounts.policy import ACCESS_TOKEN_TTL_MS, REFRESH_TOKEN_LENGTH, REFRESH_TOKEN_TTL_MS, clean_user_agent
from domain.accounts.session_and_sign_in_model import ClientInfo, RefreshToken, UserSession
from domain.accounts.sign_in_ports import AccessTokenCodec, TokenHasher
from domain.kernel.clock import SECOND_MS
from domain.kernel.ids import IdAndSecretGenerator, IdPrefix, SessionId
from domain.sign_in.session_revocation import SessionRowsTx


@dataclass(frozen=True, slots=True)
class TokenPair:
    access_token: str
    refresh_token: str
    expires_in_s: int = ACCESS_TOKEN_TTL_MS // SECOND_MS


class SessionTokenIssuer:
    def __init__(self, *, ids: IdAndSecretGenerator, tokens: AccessTokenCodec, digest: TokenHasher) -> None:
        self._ids = ids
        self._tokens = tokens
        self._digest = digest

    async def open_session(
        self,
        tx: SessionRowsTx,
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
            expires_ms=_expiry(now_ms, ends_ms),
            ends_ms=ends_ms,
            provider_factor_ms=provider_factor_ms,
        )
        await tx.user_sessions.add(session)
        return await self._issue(tx, membership, session.session_id, now_ms, session.expires_ms)

    async def issue_access_token(self, tx: SessionRowsTx, membership: Membership, client: ClientInfo, now_ms: int) -> str:
        """An access token without a refresh token: its session ends with it."""
        session = replace(
            self._new_session(membership, client, now_ms), expires_ms=now_ms + ACCESS_TOKEN_TTL_MS, signed_out_ms=now_ms
        )
        await tx.user_sessions.add(session)
        return self._tokens.issue(membership, session.session_id, now_ms)

    def _new_session(self, membership: Membership, client: ClientInfo, now_ms: int) -> UserSession:
        return UserSession(
            session_id=SessionId(self._ids.new_id(IdPrefix.SESSION)),
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
        self, tx: SessionRowsTx, membership: Membership, session_id: SessionId, client: ClientInfo, now_ms: int
    ) -> TokenPair:
        """The next tokens of a session, which also records its last use."""
        session = await tx.user_sessions.get(session_id)
        expires_ms = _expiry(now_ms, None if session is None else session.ends_ms)
        user_agent = clean_user_agent(client.user_agent)
        await tx.user_sessions.record_use(session_id, now_ms, expires_ms, client.address, user_agent)
        return await self._issue(tx, membership, session_id, now_ms, expires_ms)

    async def _issue(
        self, tx: SessionRowsTx, membership: Membership, session_id: SessionId, now_ms: int, expires_ms: int
    ) -> TokenPair:
        refresh_token = self._ids.random_alphanumeric(REFRESH_TOKEN_LENGTH)
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
        return TokenPair(self._tokens.issue(membership, session_id, now_ms), refresh_token)

    def hash(self, refresh_token: str) -> bytes:
        """The form in which a refresh token is stored."""
        return self._digest.sha256(refresh_token)


def _expiry(now_ms: int, ends_ms: int | None) -> int:
    """When a refresh token that is issued now expires."""
    expires_ms = now_ms + REFRESH_TOKEN_TTL_MS
    return expires_ms if ends_ms is None else min(expires_ms, ends_ms)
