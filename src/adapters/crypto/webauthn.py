"""WebAuthn with the `webauthn` package, for one origin.

The package takes half a second to import and a signature a millisecond to verify, so both happen in a thread.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from domain.accounts.model import User
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import Json, JsonObject
from domain.sign_in.model import NewPasskeyCredential, Passkey, UnverifiedPasskeyAssertion
from domain.sign_in.policy import CHALLENGE_TTL_MS
from domain.sign_in.ports import PasskeyResponseError

SERVICE_NAME = "Latchboard"
ALGORITHMS = (-7, -8, -257)
"""ES256, EdDSA, RS256 (RFC 9053): what authenticators offer."""
TRANSPORTS = frozenset({"ble", "hybrid", "internal", "nfc", "smart-card", "usb"})
MAX_CREDENTIAL_ID_BYTES = 1_023
"""WebAuthn level 3, 4."""

T = TypeVar("T")


@service
class WebAuthnCeremonies:
    """`origin`: where people reach the dashboard, such as https://latchboard.example.com."""

    origin: str

    @property
    def rp_id(self) -> str:
        """The relying party: the host of the origin."""
        return urlsplit(self.origin).hostname or ""

    def creation_options(self, user: User, challenge: str, existing: Sequence[Passkey]) -> JsonObject:
        return {
            "rp": {"id": self.rp_id, "name": SERVICE_NAME},
            "user": {"id": _encode(user.user_id.encode()), "name": user.email, "displayName": user.name},
            "challenge": _encode(challenge.encode()),
            "pubKeyCredParams": [{"type": "public-key", "alg": algorithm} for algorithm in ALGORITHMS],
            "timeout": CHALLENGE_TTL_MS,
            "excludeCredentials": _descriptors(existing),
            "authenticatorSelection": {"residentKey": "required", "requireResidentKey": True, "userVerification": "required"},
            "attestation": "none",
        }

    def request_options(self, challenge: str, allowed: Sequence[Passkey]) -> JsonObject:
        return {
            "challenge": _encode(challenge.encode()),
            "timeout": CHALLENGE_TTL_MS,
            "rpId": self.rp_id,
            "allowCredentials": _descriptors(allowed),
            "userVerification": "required",
        }

    def read_challenge(self, response: JsonObject) -> str:
        return _read_challenge(_object(response, "response"))

    def read_assertion(self, response: JsonObject) -> UnverifiedPasskeyAssertion:
        inner = _object(response, "response")
        handle = inner.get("userHandle")
        credential_id = _decode(response.get("rawId"))
        if not 0 < len(credential_id) <= MAX_CREDENTIAL_ID_BYTES:
            raise PasskeyResponseError
        user_handle = None if handle is None else _decode(handle).decode("utf-8", "replace")
        return UnverifiedPasskeyAssertion(credential_id, _read_challenge(inner), user_handle)

    async def verify_registration(self, response: JsonObject, challenge: str) -> NewPasskeyCredential:
        def verify() -> Any:
            from webauthn import verify_registration_response

            return verify_registration_response(
                credential=response,
                expected_challenge=challenge.encode(),
                expected_rp_id=self.rp_id,
                expected_origin=self.origin,
                require_user_verification=True,
            )

        verified = await _in_thread(verify)
        if not 0 < len(verified.credential_id) <= MAX_CREDENTIAL_ID_BYTES:
            raise PasskeyResponseError
        transports = _object(response, "response").get("transports")
        known = (
            {one for one in transports if isinstance(one, str) and one in TRANSPORTS} if isinstance(transports, list) else set()
        )
        return NewPasskeyCredential(
            verified.credential_id,
            verified.credential_public_key,
            verified.sign_count,
            tuple(sorted(known)),
            verified.credential_backed_up,
        )

    async def verify_assertion(self, response: JsonObject, challenge: str, passkey: Passkey) -> int:
        def verify() -> Any:
            from webauthn import verify_authentication_response

            return verify_authentication_response(
                credential=response,
                expected_challenge=challenge.encode(),
                expected_rp_id=self.rp_id,
                expected_origin=self.origin,
                credential_public_key=passkey.public_key,
                credential_current_sign_count=0,
                require_user_verification=True,
            )

        return int((await _in_thread(verify)).new_sign_count)


async def _in_thread(verify: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(verify)
    except Exception as error:  # any fault of a response that strangers compose means: not verified
        raise PasskeyResponseError from error


def _descriptors(passkeys: Sequence[Passkey]) -> list[Json]:
    return [{"type": "public-key", "id": _encode(one.credential_id), "transports": [*one.transports]} for one in passkeys]


def _read_challenge(inner: JsonObject) -> str:
    try:
        client_data = json.loads(_decode(inner.get("clientDataJSON")))
        return _decode(client_data["challenge"]).decode("ascii")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PasskeyResponseError from None


def _object(within: JsonObject, name: str) -> JsonObject:
    found = within.get(name)
    if not isinstance(found, dict):
        raise PasskeyResponseError
    return found


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: Json) -> bytes:
    """Base64url without padding. Raises PasskeyResponseError."""
    try:
        if isinstance(text, str):
            return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        pass
    raise PasskeyResponseError
