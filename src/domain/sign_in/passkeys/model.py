"""Passkeys: credentials of WebAuthn that a browser or a security key finds by itself and uses after it has checked the person (by
finger, face or PIN). So one is enough to sign in, and each counts as a second factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.kernel.ids import PasskeyId, UserId

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
