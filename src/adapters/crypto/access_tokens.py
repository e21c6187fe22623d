"""Access tokens: JWT (RFC 7519) with HS256 only; `kid` names the key, never an algorithm or a URL.

Time comes from the `Clock` port, so PyJWT's time checks are off; the claims are required and checked here. A verified signature
stays valid, so verified tokens are cached; expiry, session and membership are checked on each call. PyJWT
imports what signatures by key pairs need too, 2 MiB, so it is imported with the first token.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from adapters.crypto.key_ring import MasterKey, MasterKeyRing
from domain.accounts.model import Membership
from domain.accounts.policy import ACCESS_TOKEN_TTL_MS
from domain.kernel.clock import SECOND_MS
from domain.kernel.errors import Unauthenticated
from domain.kernel.ids import AccountId, MembershipId, SessionId, UserId
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
