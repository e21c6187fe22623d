"""Web Push: a message encrypted for one browser (RFC 8291), and the header that says who sends it (VAPID, RFC 8292)."""

from __future__ import annotations

import base64
import binascii
import json
from urllib.parse import urlsplit

import http_ece
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat, load_der_private_key

from domain.kernel.clock import HOUR_MS, SECOND_MS
from domain.notifications.destinations import WebPushDestination
from domain.notifications.model import SEND_TIMEOUT_S, NotificationMessage
from domain.webhooks.ports import OutboundHttpRequest

GONE = frozenset({404, 410})
"""How a push service says that a subscription has ended (RFC 8030, 7.3)."""
TOKEN_TTL_MS = 12 * HOUR_MS
"""RFC 8292 allows 24 hours; half of that leaves room for wrong clocks."""
MAX_TEXT = 900
"""Characters. A push service takes 4,096 bytes of ciphertext (RFC 8030, 7.2), in UTF-8 and with the link."""
AUTH_SECRET_SIZE, POINT_SIZE = 16, 65


class VapidKeyCodec:
    """Implements `PushKeyCodec`. The private key as text is PKCS #8 in base64url."""

    def generate(self) -> str:
        key = ec.generate_private_key(ec.SECP256R1())
        return _encode(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))

    def public_key(self, private_key: str) -> str:
        return _encode(_load(private_key).public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint))

    def are_browser_keys(self, p256dh: str, auth: str) -> bool:
        try:
            ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), _decode(p256dh))
            return len(_decode(p256dh)) == POINT_SIZE and len(_decode(auth)) == AUTH_SECRET_SIZE
        except ValueError:
            return False


def push_request(
    to: WebPushDestination, message: NotificationMessage, *, private_key: str, contact: str, now_ms: int
) -> OutboundHttpRequest:
    """`contact`: whom the operator of a push service can reach, a mailto or https URL. Raises ValueError for keys that no browser
    makes."""
    content = {"title": message.title, "body": message.text[:MAX_TEXT], "link": message.link, "tag": message.tag}
    body: bytes = http_ece.encrypt(
        json.dumps(content, ensure_ascii=False).encode(),
        private_key=ec.generate_private_key(ec.SECP256R1()),
        dh=_decode(to.p256dh),
        auth_secret=_decode(to.auth),
        version="aes128gcm",
    )
    headers = (
        ("Authorization", _authorization(to.endpoint, private_key, contact, now_ms)),
        ("Content-Encoding", "aes128gcm"),
        ("Content-Type", "application/octet-stream"),
        ("TTL", str(message.ttl_s)),
        ("Urgency", "high" if message.is_urgent else "normal"),
        ("User-Agent", "Latchboard"),
    )
    return OutboundHttpRequest(to.endpoint, headers, body, SEND_TIMEOUT_S)


def _authorization(endpoint: str, private_key: str, contact: str, now_ms: int) -> str:
    key = _load(private_key)
    parts = urlsplit(endpoint)
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": (now_ms + TOKEN_TTL_MS) // SECOND_MS, "sub": contact}
    token = jwt.encode(claims, key, algorithm="ES256")
    public = _encode(key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint))
    return f"vapid t={token}, k={public}"


def _load(private_key: str) -> ec.EllipticCurvePrivateKey:
    key = load_der_private_key(_decode(private_key), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)  # noqa: S101 - this module made it
    return key


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    """Raises ValueError."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise ValueError("is not base64url") from None
