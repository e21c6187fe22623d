"""What the service signs and hashes with keys of its ring. Each kind of token has its own key: none passes for another.

Tokens are JWT (RFC 7519) with HS256 only; `kid` names the key, never an algorithm or a URL. Time comes from the `Clock` port, so
PyJWT's time checks are off; the claims are required and checked here or in the domain. PyJWT imports what signatures by key pairs
need too, 2 MiB, so it is imported with the first token.

Look-up hashes: SHA-256 for secrets with full entropy, HMAC-SHA-256 for guessable ones. Audit seals are signed with Ed25519.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from adapters.crypto.key_ring import MasterKey, MasterKeyRing
from domain.accounts.model import Membership
from domain.accounts.policy import ACCESS_TOKEN_TTL_MS
from domain.approvals.links import ApprovalLinkClaims
from domain.kernel.clock import SECOND_MS
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unauthenticated
from domain.kernel.ids import AccountId, ApprovalId, MembershipId, SessionId, UserId
from domain.sign_in.model import AccessTokenClaims

ALGORITHM = "HS256"
ISSUER = "latchboard"
AUDIENCE = "latchboard-api"
REQUIRED_CLAIMS = ["exp", "iat", "sub", "iss", "aud", "acc", "mbr", "sid"]
MAX_TOKEN_LENGTH = 2048
VERIFIED_CACHE_SIZE = 1024
"""Verified tokens in the cache: a few hundred bytes each; a session gets a new token every 15 minutes."""
MAX_CLOCK_SKEW_MS = 60 * SECOND_MS
"""Accepted lead of another instance's clock."""


class JwtAccessTokenCodec:
    """A verified signature stays valid, so it is cached; expiry, session and membership are checked on each call."""

    def __init__(self, ring: MasterKeyRing) -> None:
        self._ring = ring
        self._signing_keys: dict[str, bytes] = {}
        self._verify_cached = lru_cache(VERIFIED_CACHE_SIZE)(self._verify_signature)

    def issue(self, membership: Membership, session_id: SessionId, now_ms: int) -> str:
        issued = now_ms // SECOND_MS
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": membership.user_id,
            "acc": membership.account_id,
            "mbr": membership.membership_id,
            "sid": session_id,
            "iat": issued,
            "exp": issued + ACCESS_TOKEN_TTL_MS // SECOND_MS,
        }
        return _sign(claims, self._ring, self._signing_key)

    def verify(self, token: str, now_ms: int) -> AccessTokenClaims:
        claims = self._verify_cached(token)
        subject, membership, account, session = texts = [claims[name] for name in ("sub", "mbr", "acc", "sid")]
        issued, expires = claims["iat"], claims["exp"]
        if (
            not (all(isinstance(text, str) for text in texts) and type(issued) is int and type(expires) is int)
            or issued * SECOND_MS > now_ms + MAX_CLOCK_SKEW_MS
        ):
            raise _invalid_token_error()
        if expires * SECOND_MS <= now_ms:
            raise Unauthenticated(
                "The access token has expired. Get a new one with POST /api/v1/auth/refresh.", code="TOKEN_EXPIRED"
            )
        return AccessTokenClaims(
            UserId(subject), MembershipId(membership), AccountId(account), SessionId(session), expires * SECOND_MS
        )

    def _verify_signature(self, token: str) -> dict[str, Any]:
        claims = _verify(
            token, self._ring, self._signing_key, REQUIRED_CLAIMS, max_length=MAX_TOKEN_LENGTH, audience=AUDIENCE, issuer=ISSUER
        )
        if claims is None:
            raise _invalid_token_error()
        return claims

    def _signing_key(self, key: MasterKey) -> bytes:
        known = self._signing_keys.get(key.key_id)
        if known is None:
            known = self._signing_keys[key.key_id] = key.derive("access-token")
        return known


def _invalid_token_error() -> Unauthenticated:
    return Unauthenticated("The access token is not valid. Sign in with POST /api/v1/auth/login.")


LINK_AUDIENCE = "latchboard-approval-link"
MAX_LINK_LENGTH = 1_024


@service
class JwtApprovalLinkCodec:
    ring: MasterKeyRing

    def issue(self, membership_id: MembershipId, approval_id: ApprovalId, issued_ms: int, expires_ms: int) -> str:
        claims = {
            "aud": LINK_AUDIENCE,
            "sub": membership_id,
            "apv": approval_id,
            "ims": issued_ms,
            "exp": expires_ms // SECOND_MS,
        }
        return _sign(claims, self.ring, _link_key)

    def read(self, token: str) -> ApprovalLinkClaims | None:
        required = ["exp", "ims", "sub", "apv", "aud"]
        claims = _verify(token, self.ring, _link_key, required, max_length=MAX_LINK_LENGTH, audience=LINK_AUDIENCE)
        if claims is None:
            return None
        member, approval, issued_ms, expires = (claims[name] for name in ("sub", "apv", "ims", "exp"))
        if not (isinstance(member, str) and isinstance(approval, str) and type(issued_ms) is type(expires) is int):
            return None
        return ApprovalLinkClaims(MembershipId(member), ApprovalId(approval), issued_ms, expires * SECOND_MS)


def _link_key(key: MasterKey) -> bytes:
    return key.derive("approval-link")


def _sign(claims: dict[str, Any], ring: MasterKeyRing, derive: Callable[[MasterKey], bytes]) -> str:
    import jwt

    newest = ring.newest
    return jwt.encode(claims, derive(newest), algorithm=ALGORITHM, headers={"kid": newest.key_id})


def _verify(
    token: str,
    ring: MasterKeyRing,
    derive: Callable[[MasterKey], bytes],
    required: list[str],
    *,
    max_length: int,
    audience: str,
    issuer: str | None = None,
) -> dict[str, Any] | None:
    """The claims of a token that a key of the ring has signed; None for any other."""
    import jwt

    if len(token) > max_length:
        return None
    options: Any = {"require": required, "verify_exp": False, "verify_iat": False, "verify_nbf": False}
    try:
        key = ring.find(str(jwt.get_unverified_header(token).get("kid")))
        if key is None:
            return None
        return jwt.decode(token, derive(key), algorithms=[ALGORITHM], audience=audience, issuer=issuer, options=options)
    except (jwt.InvalidTokenError, ValueError):
        return None


class KeyRingTokenHasher:
    """The HMAC uses the oldest key of the ring: it protects codes that live ten minutes, and a rotation that adds a new key in
    front must not invalidate codes already sent."""

    def __init__(self, ring: MasterKeyRing) -> None:
        self._key = ring.keys[-1].derive("digest")

    def sha256(self, text: str) -> bytes:
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

    def hmac_sha256(self, purpose: str, text: str) -> bytes:
        return hmac.digest(self._key, f"{purpose}\x00{text}".encode("utf-8", "surrogatepass"), "sha256")


class Ed25519AuditSealKey:
    def __init__(self, master: MasterKey) -> None:
        self.key_id = master.key_id
        self._private_key = Ed25519PrivateKey.from_private_bytes(master.derive("audit-seal"))
        self.public_key = self._private_key.public_key().public_bytes_raw().hex()

    def sign(self, content: bytes) -> str:
        return self._private_key.sign(content).hex()


@service
class Ed25519AuditSealKeyProvider:
    ring: MasterKeyRing

    def newest(self) -> Ed25519AuditSealKey:
        return Ed25519AuditSealKey(self.ring.newest)

    def all(self) -> list[Ed25519AuditSealKey]:
        """Newest first."""
        return [Ed25519AuditSealKey(key) for key in (self.ring.newest, *self.ring.keys[1:])]


def is_signed_by(public_key: str, signature: str, content: bytes) -> bool:
    """Key and signature in hexadecimal; what is none of either is False."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(bytes.fromhex(signature), content)
    except (InvalidSignature, ValueError):
        return False
    return True
