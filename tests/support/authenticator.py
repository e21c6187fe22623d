"""A software authenticator for passkeys: what a browser and a security key send, each part of which a test can falsify."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

PRESENT, VERIFIED, HAS_CREDENTIAL = 0x01, 0x04, 0x40


def encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@dataclass
class SoftwareAuthenticator:
    """One passkey. `flags`: present and verified, unless a test says otherwise."""

    origin: str
    sign_count: int = 0
    flags: int = PRESENT | VERIFIED
    user_handle: str | None = None
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def create(self, options: dict[str, Any]) -> dict[str, Any]:
        """`navigator.credentials.create` as JSON."""
        self.user_handle = options["user"]["id"]
        point = self.key.public_key().public_numbers()
        cose = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32), -3: point.y.to_bytes(32)})
        attested = bytes(16) + len(self.credential_id).to_bytes(2) + self.credential_id + cose
        data = self._authenticator_data(HAS_CREDENTIAL) + attested
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        client_data = self._client_data("webauthn.create", options["challenge"])
        response = {"clientDataJSON": encode(client_data), "attestationObject": encode(attestation), "transports": ["internal"]}
        return self._credential(response)

    def get(self, options: dict[str, Any]) -> dict[str, Any]:
        """`navigator.credentials.get` as JSON; counts the use."""
        self.sign_count += 1
        data = self._authenticator_data()
        client_data = self._client_data("webauthn.get", options["challenge"])
        signature = self.key.sign(data + hashlib.sha256(client_data).digest(), ec.ECDSA(hashes.SHA256()))
        response = {
            "clientDataJSON": encode(client_data),
            "authenticatorData": encode(data),
            "signature": encode(signature),
            "userHandle": self.user_handle,
        }
        return self._credential(response)

    def _credential(self, response: dict[str, Any]) -> dict[str, Any]:
        shown = encode(self.credential_id)
        return {"id": shown, "rawId": shown, "type": "public-key", "clientExtensionResults": {}, "response": response}

    def _client_data(self, kind: str, challenge: str) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False}).encode()

    def _authenticator_data(self, more_flags: int = 0) -> bytes:
        rp_id = urlsplit(self.origin).hostname or ""
        flags = self.flags | more_flags
        return hashlib.sha256(rp_id.encode()).digest() + flags.to_bytes(1) + self.sign_count.to_bytes(4)
