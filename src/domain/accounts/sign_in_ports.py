"""The ports of signing in: tokens, sessions, codes, unlock links, failures, hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.accounts.model import Membership
from domain.accounts.session_and_sign_in_model import (
    AccessTokenClaims,
    LoginFailures,
    PasswordChangeCode,
    RefreshToken,
    SignInUnlockLink,
    UserSession,
)
from domain.kernel.ids import SessionId, UserId


class RefreshTokenRepository(Protocol):
    async def add(self, token: RefreshToken) -> None: ...

    async def get(self, token_hash: bytes) -> RefreshToken | None: ...

    async def mark_spent(self, token_hash: bytes, at_ms: int) -> bool:
        """Atomic compare-and-set: True for the one caller that found the token neither spent nor revoked."""

    async def revoke_family(self, family: SessionId, at_ms: int) -> None: ...

    async def revoke_by_user(self, user_id: UserId, at_ms: int, *, keep: SessionId | None = None) -> None: ...

    async def delete_older_than(self, expires_ms: int, limit: int) -> int: ...


class UserSessionRepository(Protocol):
    async def add(self, session: UserSession) -> None: ...

    async def get(self, session_id: SessionId) -> UserSession | None: ...

    async def get_for_update(self, session_id: SessionId) -> UserSession | None:
        """Locks the row until the write transaction ends."""

    async def find_with_membership(self, session_id: SessionId) -> tuple[UserSession, Membership] | None:
        """One look-up for each call of a session."""

    async def list_open(self, user_id: UserId, now_ms: int) -> Sequence[UserSession]:
        """Neither ended nor expired; the last used first. The last use of a service session is that of its token."""

    async def record_use(self, session_id: SessionId, at_ms: int, expires_ms: int, address: str, user_agent: str) -> None: ...

    async def record_verification(self, session_id: SessionId, at_ms: int) -> None: ...

    async def sign_out(self, session_id: SessionId, at_ms: int) -> None: ...

    async def revoke(self, session_id: SessionId, at_ms: int) -> None:
        """What a service session asked for and nobody approved is overdue from then on."""

    async def revoke_by_user(self, user_id: UserId, at_ms: int, *, keep: SessionId | None = None) -> None:
        """As `revoke` for each but `keep`."""

    async def last_revoked_ms(self, user_id: UserId) -> int | None:
        """When a session of the person, not of a program, was revoked last. Signing out revokes none."""

    async def delete_older_than(self, expires_ms: int, limit: int) -> int: ...


class PasswordChangeCodeRepository(Protocol):
    async def get_for_update(self, user_id: UserId) -> PasswordChangeCode | None:
        """Locks the user's code until the write transaction ends."""

    async def upsert(self, code: PasswordChangeCode) -> None: ...


class SignInUnlockLinkRepository(Protocol):
    async def get_for_update(self, user_id: UserId) -> SignInUnlockLink | None:
        """Locks the user's link until the write transaction ends."""

    async def find_by_token(self, token_hash: bytes) -> SignInUnlockLink | None: ...

    async def upsert(self, link: SignInUnlockLink) -> None: ...


class LoginFailureRepository(Protocol):
    async def get_for_update(self, subject: str) -> LoginFailures | None:
        """Locks the subject's row until the write transaction ends."""

    async def upsert(self, failures: LoginFailures) -> None: ...

    async def delete(self, subject: str) -> None: ...

    async def delete_older_than(self, last_ms: int, limit: int) -> int:
        """Delete counters, but not known logins (subjects that start with `KNOWN_LOGIN_PREFIX`)."""

    async def delete_known_logins_older_than(self, last_ms: int, limit: int) -> int: ...


class HasRefreshTokens(Protocol):
    @property
    def refresh_tokens(self) -> RefreshTokenRepository: ...


class HasUserSessions(Protocol):
    @property
    def user_sessions(self) -> UserSessionRepository: ...


class HasPasswordChangeCodes(Protocol):
    @property
    def one_time_codes(self) -> PasswordChangeCodeRepository: ...


class HasSignInUnlockLinks(Protocol):
    @property
    def unlock_links(self) -> SignInUnlockLinkRepository: ...


class HasLoginFailures(Protocol):
    @property
    def login_failures(self) -> LoginFailureRepository: ...


class PasswordHasher(Protocol):
    """Port: argon2id (RFC 9106), run outside the event loop."""

    async def hash(self, password: str) -> str: ...

    async def verify(self, password_hash: str, password: str) -> bool: ...

    async def verify_dummy(self, password: str) -> None:
        """Takes as long as `verify`; for an unknown email."""

    def needs_rehash(self, password_hash: str) -> bool: ...


class AccessTokenCodec(Protocol):
    def issue(self, membership: Membership, session_id: SessionId, now_ms: int) -> str: ...

    def verify(self, token: str, now_ms: int) -> AccessTokenClaims:
        """Raises Unauthenticated `TOKEN_EXPIRED` or `UNAUTHENTICATED`."""


class TokenHasher(Protocol):
    def sha256(self, text: str) -> bytes:
        """SHA-256, for random secrets with full entropy."""

    def hmac_sha256(self, purpose: str, text: str) -> bytes:
        """HMAC-SHA-256 under the installation's key, for secrets with little entropy (one-time codes)."""
