"""A browser's side of Web Push: its keys, and what it does with a message. Written after RFC 8188 and RFC 8291 with bare
primitives, so that it shares nothing with the service."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def point_of(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def load_point(data: bytes) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), data)


class PushBrowser:
    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._auth = os.urandom(16)

    def subscription(self) -> dict[str, Any]:
        """As `PushSubscription.toJSON()`."""
        keys = {"p256dh": encode(point_of(self._key.public_key())), "auth": encode(self._auth)}
        return {"endpoint": self.endpoint, "expirationTime": None, "keys": keys}

    def decrypt(self, body: bytes) -> Any:
        """The JSON in a message of one record."""
        return json.loads(decrypt(body, self._key, self._auth))


def decrypt(body: bytes, key: ec.EllipticCurvePrivateKey, auth: bytes) -> bytes:
    salt, record_size, id_length = body[:16], int.from_bytes(body[16:20], "big"), body[20]
    sender, cipher = body[21 : 21 + id_length], body[21 + id_length :]
    assert len(cipher) <= record_size
    shared = key.exchange(ec.ECDH(), load_point(sender))
    info = b"WebPush: info\x00" + point_of(key.public_key()) + sender
    secret = HKDF(SHA256(), 32, auth, info).derive(shared)
    content_key = HKDF(SHA256(), 16, salt, b"Content-Encoding: aes128gcm\x00").derive(secret)
    nonce = HKDF(SHA256(), 12, salt, b"Content-Encoding: nonce\x00").derive(secret)
    padded = AESGCM(content_key).decrypt(nonce, cipher, None)
    content, delimiter, _ = padded.rstrip(b"\x00").rpartition(b"\x02")
    assert delimiter == b"\x02", "the last record ends with 2"
    return content


def verify_vapid(headers: Mapping[str, str], public_key: str, now_s: int) -> dict[str, Any]:
    """The claims of the sender's token, as a push service reads it (RFC 8292), for the key that the browser subscribed with."""
    scheme, _, rest = headers["Authorization"].partition(" ")
    fields = dict(part.strip().split("=", 1) for part in rest.split(","))
    assert scheme == "vapid"
    assert fields["k"] == public_key
    options: Any = {"verify_aud": False, "verify_exp": False}
    claims: dict[str, Any] = jwt.decode(fields["t"], load_point(decode(public_key)), algorithms=["ES256"], options=options)
    assert now_s < claims["exp"] <= now_s + 24 * 3600
    return claims
