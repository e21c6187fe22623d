"""Access tokens: JWT (RFC 7519) with HS256 only; `kid` names the key, never an algorithm or a URL.

Time comes from the `Clock` port, so PyJWT's time checks are off; the claims are required and checked here. A verified signature
stays valid, so verified tokens are cached; expiry, session and membership are checked on each call. PyJWT
imports what signatures by key pairs need too, 2 MiB, so it is imported with the first token.

Tokens of approval links: JWT (RFC 7519) with HS256 and a key of their own, so that an access token is no link and a link no
access token. Expiry is checked by the domain's clock. PyJWT is imported with the first link.

Hashes for look-up: SHA-256 for secrets with full entropy, HMAC-SHA-256 for guessable ones.

The HMAC uses the oldest key of the ring: it protects codes that live ten minutes, and a rotation that adds a new key in front
must not invalidate codes already sent.

The keys that sign audit seals: Ed25519, derived from the secret keys of the installation.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from adapters.crypto.key_ring import MasterKey, MasterKeyRing
from domain.accounts.model import Membership
from domain.accounts.policy import ACCESS_TOKEN_TTL_MS
from domain.approvals.links import ApprovalLinkClaims
from domain.kernel.clock import SECOND_MS
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
    def __init__(self, ring: MasterKeyRing) -> None:
        self._key_provider = ring
        self._signing_keys: dict[str, bytes] = {}
        self._verify_cached = lru_cache(VERIFIED_CACHE_SIZE)(self._verify_signature)

    def issue(self, membership: Membership, session_id: SessionId, now_ms: int) -> str:
        import jwt

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
        newest = self._key_provider.newest
        return jwt.encode(claims, self._signing_key(newest), algorithm=ALGORITHM, headers={"kid": newest.key_id})

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
        import jwt

        if len(token) > MAX_TOKEN_LENGTH:
            raise _invalid_token_error()
        try:
            key = self._key_provider.find(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                raise _invalid_token_error()
            options: Any = {"require": REQUIRED_CLAIMS, "verify_exp": False, "verify_iat": False, "verify_nbf": False}
            return jwt.decode(
                token, self._signing_key(key), algorithms=[ALGORITHM], issuer=ISSUER, audience=AUDIENCE, options=options
            )
        except (jwt.InvalidTokenError, ValueError):
            raise _invalid_token_error() from None

    def _signing_key(self, key: MasterKey) -> bytes:
        known = self._signing_keys.get(key.key_id)
        if known is None:
            known = self._signing_keys[key.key_id] = key.derive("access-token")
        return known


def _invalid_token_error() -> Unauthenticated:
    return Unauthenticated("The access token is not valid. Sign in with POST /api/v1/auth/login.")


LINK_AUDIENCE = "latchboard-approval-link"
PURPOSE = "approval-link"
MAX_LINK_LENGTH = 1_024


class JwtApprovalLinkCodec:
    def __init__(self, ring: MasterKeyRing) -> None:
        self._key_provider = ring

    def issue(self, membership_id: MembershipId, approval_id: ApprovalId, issued_ms: int, expires_ms: int) -> str:
        import jwt

        claims = {
            "aud": LINK_AUDIENCE,
            "sub": membership_id,
            "apv": approval_id,
            "ims": issued_ms,
            "exp": expires_ms // SECOND_MS,
        }
        newest = self._key_provider.newest
        return jwt.encode(claims, newest.derive(PURPOSE), algorithm=ALGORITHM, headers={"kid": newest.key_id})

    def read(self, token: str) -> ApprovalLinkClaims | None:
        import jwt

        if len(token) > MAX_LINK_LENGTH:
            return None
        try:
            key = self._key_provider.find(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                return None
            options: Any = {"require": ["exp", "ims", "sub", "apv", "aud"], "verify_exp": False}
            claims = jwt.decode(token, key.derive(PURPOSE), algorithms=[ALGORITHM], audience=LINK_AUDIENCE, options=options)
        except (jwt.InvalidTokenError, ValueError):
            return None
        member, approval, issued_ms, expires = (claims[name] for name in ("sub", "apv", "ims", "exp"))
        if not (isinstance(member, str) and isinstance(approval, str) and type(issued_ms) is type(expires) is int):
            return None
        return ApprovalLinkClaims(MembershipId(member), ApprovalId(approval), issued_ms, expires * SECOND_MS)


class KeyRingTokenHasher:
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


class Ed25519AuditSealKeyProvider:
    def __init__(self, ring: MasterKeyRing) -> None:
        self._ring = ring

    def newest(self) -> Ed25519AuditSealKey:
        return Ed25519AuditSealKey(self._ring.newest)

    def all(self) -> list[Ed25519AuditSealKey]:
        """Newest first."""
        return [Ed25519AuditSealKey(key) for key in (self._ring.newest, *self._ring.keys[1:])]


def is_signed_by(public_key: str, signature: str, content: bytes) -> bool:
    """Key and signature in hexadecimal; what is none of either is False."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(bytes.fromhex(signature), content)
    except (InvalidSignature, ValueError):
        return False
    return True
