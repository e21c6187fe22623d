"""What is stored of a person's sign-in: sessions, tokens, codes, second factors and failures.

A refresh token is used once and replaced by the next. The tokens that follow from one sign-in form a family: a session. A second
use of a token shows that it was stolen, so the whole session is revoked.

Passkeys: credentials of WebAuthn that a browser or a security key finds by itself and uses after it has checked the person (by
finger, face or PIN). So one is enough to sign in, and each counts as a second factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from domain.kernel.caller import Role, SessionCaller
from domain.kernel.ids import AccountId, MembershipId, PasskeyId, SessionId, UserId


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """Where a sign-in comes from: the client's address, its `User-Agent` header, and the tokens of its device
    (`policy.py`)."""

    address: str
    user_agent: str = ""
    device_tokens: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class UserSession:
    """One sign-in of a user. `address` and `user_agent` are those of its last use, which is its last refresh.

    `signed_out_ms`: the last access token is valid until it expires, and there will be no other. `revoked_ms`: no token is valid.
    """

    session_id: SessionId
    user_id: UserId
    membership_id: MembershipId
    created_ms: int
    last_used_ms: int
    expires_ms: int
    address: str
    user_agent: str
    signed_out_ms: int | None = None
    revoked_ms: int | None = None
    verified_ms: int | None = None
    """When the user last proved to be present: by signing in, or by a step-up."""
    ends_ms: int | None = None
    """When an identity provider must confirm the user again; None for a sign-in with a password."""
    provider_factor_ms: int | None = None
    """When the provider's sign-in stood for the second factor; None if it did not."""

    def is_open(self, now_ms: int) -> bool:
        return self.signed_out_ms is None and self.revoked_ms is None and now_ms < self.expires_ms


@dataclass(frozen=True, slots=True)
class AccessTokenClaims:
    """What a verified access token says. `expires_ms` is in Unix ms."""

    user_id: UserId
    membership_id: MembershipId
    account_id: AccountId
    session_id: SessionId
    expires_ms: int


@dataclass(frozen=True, slots=True)
class RefreshToken:
    """Only the SHA-256 of the token is kept. `spent_ms` is set when it is exchanged, `revoked_ms` when its session ends."""

    token_hash: bytes
    family: SessionId
    user_id: UserId
    membership_id: MembershipId
    issued_ms: int
    expires_ms: int
    spent_ms: int | None = None
    revoked_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PasswordChangeCode:
    """The latest code of a user, one row per user; `code_hash` is a keyed hash."""

    user_id: UserId
    code_hash: bytes
    issued_ms: int
    expires_ms: int
    tries: int
    used: bool


@dataclass(frozen=True, slots=True)
class TotpEnrollment:
    """A user's authenticator app (RFC 6238), one row per user. It counts once `confirmed_ms` is set. `last_step`: the time step
    of the last accepted code, so that no code is accepted twice."""

    user_id: UserId
    sealed: bytes = field(repr=False)
    created_ms: int
    confirmed_ms: int | None = None
    last_step: int = 0
    wrong_codes: int = 0
    """In a row, since a second factor was last accepted."""
    wrong_link_codes: int = 0
    """The same, by links for approvals."""


@dataclass(frozen=True, slots=True)
class LoginChallenge:
    """A sign-in whose password or provider was right and whose second factor is missing. Only the SHA-256 of its token is kept.
    `session_ends_ms` is for its session."""

    token_hash: bytes
    user_id: UserId
    membership_id: MembershipId
    expires_ms: int
    session_ends_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SignInUnlockLink:
    """The latest link of a user, one row per user; only the SHA-256 of its token is kept."""

    user_id: UserId
    token_hash: bytes
    issued_ms: int
    expires_ms: int
    used: bool


KNOWN_LOGIN_PREFIX = "known:"
"""Prefix of the subjects that record a successful login instead of counting failures."""


@dataclass(frozen=True, slots=True)
class LoginFailures:
    """Failed logins of one subject in the window that began at `since_ms`.

    Subjects: `device:<id>`, `pair:<email>|<block>`, `email:<email>`, `address:<block>`. A row `known:<email>|<block>` counts
    nothing: it records that this email has signed in from this block of addresses.
    """

    subject: str
    count: int
    since_ms: int
    last_ms: int


MAX_PASSKEYS = 10
"""Of one user."""


@dataclass(frozen=True, slots=True)
class Passkey:
    """`public_key` is a COSE key (RFC 9052). `sign_count` is the authenticator's counter of uses; many keep it at 0. `is_synced`:
    it is kept by a password manager on several devices."""

    passkey_id: PasskeyId
    user_id: UserId
    credential_id: bytes
    public_key: bytes = field(repr=False)
    sign_count: int
    name: str
    transports: tuple[str, ...]
    is_synced: bool
    created_ms: int
    last_used_ms: int | None = None

    def accepts_sign_count(self, sign_count: int) -> bool:
        """A counter that does not grow shows that the credential was copied (WebAuthn level 3, 7.2). 0 and 0: there is none."""
        return sign_count > self.sign_count or (sign_count == 0 and self.sign_count == 0)


@dataclass(frozen=True, slots=True)
class NewPasskeyCredential:
    """What a browser's response to a registration says, verified."""

    credential_id: bytes
    public_key: bytes = field(repr=False)
    sign_count: int
    transports: tuple[str, ...]
    is_synced: bool


@dataclass(frozen=True, slots=True)
class UnverifiedPasskeyAssertion:
    """What a browser's response says, not verified yet. `user_handle`: the user id that the authenticator keeps, if sent."""

    credential_id: bytes
    challenge: str
    user_handle: str | None


@dataclass(frozen=True, slots=True)
class VerifiedPasskeyChallenge:
    """A challenge of this service that has not expired. Once used, its hash is kept until then."""

    challenge_hash: bytes
    expires_ms: int


@dataclass(frozen=True, slots=True)
class VerifiedPasskeyAssertion:
    """A response with the right signature for the right purpose. It counts once it is used in a transaction
    (`PasskeyAssertionService.use`)."""

    passkey_id: PasskeyId
    user_id: UserId
    sign_count: int
    challenge: VerifiedPasskeyChallenge


@dataclass(frozen=True, slots=True)
class ServiceSessionToken:
    """Only the SHA-256 of its token is kept. `operations`: such as `devices:write`, which includes `devices:read`."""

    session_id: SessionId
    account_id: AccountId
    membership_id: MembershipId
    name: str
    prefix: str
    secret_hash: bytes = field(repr=False)
    role: Role
    operations: tuple[str, ...]
    created_ms: int
    expires_ms: int
    last_used_ms: int | None = None

    def act_for(self, member: SessionCaller) -> SessionCaller | None:
        """The caller that its requests come from; None if the member has a lower role now than it has."""
        if not member.role.is_at_least(self.role):
            return None
        return replace(member, role=self.role, session_id=self.session_id, operations=frozenset(self.operations))
