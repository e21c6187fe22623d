"""Ports of signing in: sessions and tokens, codes and links, failures, hashes, second factors and passkeys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.accounts.model import Membership, User
from domain.accounts.ports import AccountsTx
from domain.kernel.domain_event import JsonObject
from domain.kernel.ids import PasskeyId, SessionId, UserId
from domain.sign_in.model import (
    AccessTokenClaims,
    LoginChallenge,
    LoginFailures,
    NewPasskeyCredential,
    Passkey,
    PasswordChangeCode,
    RefreshToken,
    SignInUnlockLink,
    TotpEnrollment,
    UnverifiedPasskeyAssertion,
    UserSession,
    VerifiedPasskeyChallenge,
)


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


class PasswordHasher(Protocol):
    """Port: argon2id (RFC 9106), run outside the event loop."""

    async def hash(self, password: str) -> str: ...

    async def verify(self, password_hash: str, password: str) -> bool: ...

    async def verify_dummy(self, password: str) -> None:
        """Takes as long as `verify`; for an unknown email."""

    def needs_rehash(self, password_hash: str) -> bool: ...

    async def is_guessable(self, password: str, related: Sequence[str]) -> bool:
        """Whether it is among the first ten million guesses of somebody who knows the usual passwords and the `related` words."""


class AccessTokenCodec(Protocol):
    def issue(self, membership: Membership, session_id: SessionId, now_ms: int) -> str: ...

    def verify(self, token: str, now_ms: int) -> AccessTokenClaims:
        """Raises Unauthenticated `TOKEN_EXPIRED` or `UNAUTHENTICATED`."""


class TokenHasher(Protocol):
    def sha256(self, text: str) -> bytes:
        """SHA-256, for random secrets with full entropy."""

    def hmac_sha256(self, purpose: str, text: str) -> bytes:
        """HMAC-SHA-256 under the installation's key, for secrets with little entropy (one-time codes)."""


class SecondFactorRepository(Protocol):
    async def is_enabled(self, user_id: UserId) -> bool:
        """Whether the user has a confirmed authenticator app or a passkey."""

    async def has_totp(self, user_id: UserId) -> bool:
        """Whether the user has a confirmed authenticator app."""

    async def delete_totp(self, user_id: UserId) -> bool:
        """False if there was none."""

    async def get_totp_for_update(self, user_id: UserId) -> TotpEnrollment | None:
        """Locks the user until the write transaction ends."""

    async def upsert_totp(self, secret: TotpEnrollment) -> None: ...

    async def list_totp_page(self, after: UserId | None, limit: int) -> Sequence[TotpEnrollment]:
        """By user id, for the re-encryption after a key rotation."""

    async def rekey_totp(self, user_id: UserId, before: bytes, sealed: bytes) -> int:
        """Replace the sealed secret if it is still `before`; the number of changed rows."""

    async def count_totp(self) -> int: ...

    async def replace_recovery_codes(self, user_id: UserId, code_hashes: Sequence[bytes]) -> None: ...

    async def use_recovery_code(self, user_id: UserId, code_hash: bytes) -> bool:
        """Delete the code; False if there is none. Each is used once, also by concurrent requests."""

    async def count_recovery_codes(self, user_id: UserId) -> int: ...

    async def delete_all(self, user_id: UserId) -> bool:
        """All factors, passkeys too, and recovery codes of a user; False if there were none."""

    async def add_challenge(self, challenge: LoginChallenge) -> None: ...

    async def get_challenge(self, token_hash: bytes) -> LoginChallenge | None: ...

    async def delete_challenge(self, token_hash: bytes) -> bool:
        """False if another request has used it."""

    async def delete_challenges_older_than(self, expires_ms: int, limit: int) -> int: ...


class TotpCodec(Protocol):
    """Port: codes of authenticator apps, RFC 6238: 6 digits, 30 seconds, SHA-1 (what every app supports)."""

    def new_secret(self) -> str:
        """160 random bits, in base 32."""

    def matching_step(self, secret: str, code: str, now_ms: int) -> int | None:
        """The time step that the code is of: the present one or one next to it. None for a wrong code."""

    def setup_uri(self, secret: str, email: str) -> str: ...

    def qr_rows(self, uri: str) -> Sequence[str]:
        """The QR code without its quiet zone: its rows from the top, `1` for a dark module."""

    def qr_svg(self, uri: str) -> str: ...


class PasskeyResponseError(Exception):
    """A browser's response is malformed, or its signature, origin or challenge is wrong."""


class PasskeyRepository(Protocol):
    async def add(self, passkey: Passkey) -> None:
        """Raises Conflict when the credential is registered already."""

    async def find_by_credential(self, credential_id: bytes) -> Passkey | None: ...

    async def get_for_update(self, passkey_id: PasskeyId) -> Passkey | None:
        """Locks the passkey until the write transaction ends."""

    async def list_by_user(self, user_id: UserId) -> Sequence[Passkey]:
        """Oldest first."""

    async def record_use(self, passkey_id: PasskeyId, sign_count: int, at_ms: int) -> None: ...

    async def delete(self, user_id: UserId, passkey_id: PasskeyId) -> bool:
        """False if the user has no such passkey."""

    async def use_challenge(self, challenge: VerifiedPasskeyChallenge) -> bool:
        """False if it was used before, also by a concurrent request."""

    async def delete_challenges_older_than(self, expires_ms: int, limit: int) -> int: ...


class PasskeyCodec(Protocol):
    """Port: WebAuthn, for this service's origin. Options are the JSON of `PublicKeyCredential.parse…OptionsFromJSON`, responses
    that of `PublicKeyCredential.toJSON`. Verification requires that the authenticator has checked the person."""

    def creation_options(self, user: User, challenge: str, existing: Sequence[Passkey]) -> JsonObject: ...

    def request_options(self, challenge: str, allowed: Sequence[Passkey]) -> JsonObject:
        """`allowed` empty: any passkey of this origin, which the browser lets the person choose."""

    def read_challenge(self, response: JsonObject) -> str:
        """The challenge that the response to a registration names. Raises PasskeyResponseError."""

    def read_assertion(self, response: JsonObject) -> UnverifiedPasskeyAssertion:
        """Raises PasskeyResponseError."""

    async def verify_registration(self, response: JsonObject, challenge: str) -> NewPasskeyCredential:
        """Raises PasskeyResponseError."""

    async def verify_assertion(self, response: JsonObject, challenge: str, passkey: Passkey) -> int:
        """The sign count that the authenticator reports; comparing it is the caller's part. Raises PasskeyResponseError."""


class ChannelSuspender(Protocol):
    """Of the channels on which members are told, what a change of the password does to them. The notifications part, a higher
    layer, has the rest."""

    async def suspend_by_user(self, user_id: UserId, at_ms: int) -> int:
        """All channels of all memberships of this user that are not suspended yet; their number."""


class SignInTx(AccountsTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def notification_channels(self) -> ChannelSuspender: ...

    @property
    def refresh_tokens(self) -> RefreshTokenRepository: ...

    @property
    def user_sessions(self) -> UserSessionRepository: ...

    @property
    def one_time_codes(self) -> PasswordChangeCodeRepository: ...

    @property
    def unlock_links(self) -> SignInUnlockLinkRepository: ...

    @property
    def login_failures(self) -> LoginFailureRepository: ...

    @property
    def second_factors(self) -> SecondFactorRepository: ...

    @property
    def passkeys(self) -> PasskeyRepository: ...
