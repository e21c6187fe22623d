"""The readable definition of both webhook signatures. The native signer must produce the same results.

Service signature: HMAC-SHA256 over the exact bytes sent, keyed with the UTF-8 bytes of the whole secret string, `whsec_`
included. Standard Webhooks (specification 1.0.0): HMAC-SHA256 over `id.timestamp.body`, keyed with the base64-decoded part after
`whsec_`.
"""

from __future__ import annotations

import base64
import binascii
import hmac

from domain.kernel.errors import ValidationFailed

SECRET_PREFIX = "whsec_"  # noqa: S105 - the public prefix, not a secret


def service_signature(secret: str, body: bytes) -> str:
    """`sha256=` and 64 lower-case hexadecimal digits."""
    return "sha256=" + hmac.digest(secret.encode(), body, "sha256").hex()


def standard_signature(secret: str, message_id: str, timestamp_s: int, body: bytes) -> str:
    """`v1,` and 44 characters of base64. Raises ValidationFailed when the secret is not `whsec_` + base64."""
    content = f"{message_id}.{timestamp_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(standard_key(secret), content, "sha256")).decode()


def standard_key(secret: str) -> bytes:
    """The key bytes inside `whsec_…`. Raises ValidationFailed when there are none."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX).encode(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not key:
        raise ValidationFailed("A webhook secret is whsec_ followed by base64. Rotate the secret to get a new one.")
    return key
