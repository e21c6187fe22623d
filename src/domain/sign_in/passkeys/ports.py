"""Ports of passkeys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.accounts.model import User
from domain.kernel.domain_event import JsonObject
from domain.kernel.ids import PasskeyId, UserId
from domain.sign_in.passkeys.model import NewPasskeyCredential, Passkey, UnverifiedPasskeyAssertion, VerifiedPasskeyChallenge


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


class HasPasskeys(Protocol):
    @property
    def passkeys(self) -> PasskeyRepository: ...


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
