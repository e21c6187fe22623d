"""Verifies ID tokens (OpenID Connect Core 1.0, 3.1.3.7; RFC 7519; RFC 8725).

The algorithm must be an asymmetric one that fits the kind of the provider's key, so that neither `none` nor a public key used as
a secret is accepted. Time comes from the `Clock` port, so PyJWT's time checks are off and made here.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

import jwt

from domain.kernel.clock import HOUR_MS, SECOND_MS

LEEWAY_MS = 60 * SECOND_MS
"""By which the provider's clock may differ from ours."""
MAX_AGE_MS = HOUR_MS
MAX_TOKEN_LENGTH = 16_384
MAX_SUBJECT_LENGTH = 255
MIN_RSA_BITS = 2_048
ALGORITHMS = {"RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "EC": ("ES256", "ES384", "ES512"), "OKP": ("EdDSA",)}
"""By the kind of key. Symmetric keys are in no row."""
_HALF_HASHES = {"256": hashlib.sha256, "384": hashlib.sha384, "512": hashlib.sha512}


class IdTokenError(Exception):
    """The token is not for this sign-in; the reason is for the log."""


class UnknownSigningKeyError(IdTokenError):
    """No key of the provider can have signed it: the keys may have changed."""


def verify_id_token(
    token: str, keys: Sequence[jwt.PyJWK], *, issuer: str, client_id: str, nonce: str, now_ms: int, access_token: str | None
) -> dict[str, Any]:
    """The claims. Raises IdTokenError, UnknownSigningKeyError."""
    claims, algorithm = _verify_signature(token, keys, issuer, client_id)
    _check_parties(claims, client_id)
    _check_times(claims, now_ms)
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise IdTokenError("its nonce is of another sign-in")
    expected = claims.get("at_hash")
    if expected is not None and access_token is not None and expected != _half_hash(access_token, algorithm):
        raise IdTokenError("its at_hash is of another access token")
    return claims


def _verify_signature(token: str, keys: Sequence[jwt.PyJWK], issuer: str, client_id: str) -> tuple[dict[str, Any], str]:
    if len(token) > MAX_TOKEN_LENGTH:
        raise IdTokenError("it is too long")
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise IdTokenError(f"it is no signed token: {error}") from None
    algorithm, key_id = str(header.get("alg")), header.get("kid")
    if "crit" in header:
        raise IdTokenError("it has a critical header that is not understood")
    fitting = [key for key in keys if _fits(key, algorithm) and key_id in (None, key.key_id)]
    if not fitting:
        raise UnknownSigningKeyError(f"no key of the provider has the id {key_id!r} and the algorithm {algorithm!r}")
    options: Any = {"require": ["iss", "sub", "aud", "exp", "iat"]} | {
        f"verify_{name}": False for name in ("exp", "iat", "nbf", "sub")
    }
    fault = ""
    for key in fitting:
        try:
            claims = jwt.decode(token, key.key, algorithms=[algorithm], issuer=issuer, audience=client_id, options=options)
        except jwt.PyJWTError as error:
            fault = f"{type(error).__name__}: {error}"
            continue
        return claims, algorithm
    raise IdTokenError(fault)


def _fits(key: jwt.PyJWK, algorithm: str) -> bool:
    if key.public_key_use not in (None, "sig") or algorithm not in ALGORITHMS.get(key.key_type or "", ()):
        return False
    return key.key_type != "RSA" or key.key.key_size >= MIN_RSA_BITS


def _check_parties(claims: dict[str, Any], client_id: str) -> None:
    subject, audience, authorized = claims["sub"], claims["aud"], claims.get("azp")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_LENGTH:
        raise IdTokenError("its sub is not a text of at most 255 characters")
    if isinstance(audience, list) and len(audience) > 1 and authorized is None:
        raise IdTokenError("it is for several clients and does not say which one it was given to (azp)")
    if authorized is not None and authorized != client_id:
        raise IdTokenError("it was given to another client (azp)")


def _check_times(claims: dict[str, Any], now_ms: int) -> None:
    expires, issued, not_before = claims["exp"], claims["iat"], claims.get("nbf", 0)
    if not all(isinstance(time, int | float) and not isinstance(time, bool) for time in (expires, issued, not_before)):
        raise IdTokenError("its times are not numbers")
    if expires * SECOND_MS + LEEWAY_MS <= now_ms:
        raise IdTokenError("it has expired")
    if max(issued, not_before) * SECOND_MS > now_ms + LEEWAY_MS:
        raise IdTokenError("it is of the future: compare the clocks")
    if issued * SECOND_MS + MAX_AGE_MS <= now_ms:
        raise IdTokenError("it was issued more than an hour ago")


def _half_hash(access_token: str, algorithm: str) -> str:
    digest = _HALF_HASHES.get(algorithm[2:], hashlib.sha512)(access_token.encode()).digest()
    return urlsafe_b64encode(digest[: len(digest) // 2]).decode().rstrip("=")
