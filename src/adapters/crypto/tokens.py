"""Access tokens: JWT (RFC 7519) under HS256 and nothing else; `kid` names the key, never an algorithm or an address.

The clock is ours, so PyJWT's own check of times is off and the claims it would check are required and checked here. A
signature that was right once is right for ever, so tokens that were verified are remembered: it is times and membership that end
a token, and both are checked at each call.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jwt

from adapters.crypto.keyring import Key, Ring
from domain.accounts.model import Membership
from domain.accounts.policy import ACCESS_TOKEN_MS
from domain.kernel.clock import SECOND_MS
from domain.kernel.errors import Unauthenticated
from domain.kernel.ids import AccountId, MembershipId, UserId

ALGORITHM = "HS256"
ISSUER = "latchboard"
AUDIENCE = "latchboard-api"
REQUIRED = ["exp", "iat", "sub", "iss", "aud", "acc", "mbr"]
MAX_LENGTH = 2048
REMEMBERED = 1024
"""Verified tokens kept: a few hundred bytes each, and a session makes one in 15 minutes."""
SKEW_MS = 60 * SECOND_MS
"""How far ahead another instance's clock may be."""


class JwtAccessTokens:
    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._secrets: dict[str, bytes] = {}
        self._verified = lru_cache(REMEMBERED)(self._verify)

    def issue(self, membership: Membership, now_ms: int) -> str:
        issued = now_ms // SECOND_MS
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": membership.user_id,
            "acc": membership.account_id,
            "mbr": membership.membership_id,
            "iat": issued,
            "exp": issued + ACCESS_TOKEN_MS // SECOND_MS,
        }
        newest = self._ring.newest
        return jwt.encode(claims, self._secret(newest), algorithm=ALGORITHM, headers={"kid": newest.key_id})

    def read(self, token: str, now_ms: int) -> tuple[UserId, MembershipId, AccountId, int]:
        claims = self._verified(token)
        subject, membership, account, issued, expires = (claims[name] for name in ("sub", "mbr", "acc", "iat", "exp"))
        texts = all(isinstance(value, str) for value in (subject, membership, account))
        if not (texts and type(issued) is int and type(expires) is int) or issued * SECOND_MS > now_ms + SKEW_MS:
            raise _refusal()
        if expires * SECOND_MS <= now_ms:
            raise Unauthenticated(
                "The access token has expired. Get a new one with POST /api/v1/auth/refresh.", code="TOKEN_EXPIRED"
            )
        return UserId(subject), MembershipId(membership), AccountId(account), expires * SECOND_MS

    def _verify(self, token: str) -> dict[str, Any]:
        if len(token) > MAX_LENGTH:
            raise _refusal()
        try:
            key = self._ring.find(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                raise _refusal()
            options: Any = {"require": REQUIRED, "verify_exp": False, "verify_iat": False, "verify_nbf": False}
            return jwt.decode(token, self._secret(key), algorithms=[ALGORITHM], issuer=ISSUER, audience=AUDIENCE, options=options)
        except (jwt.InvalidTokenError, ValueError):
            raise _refusal() from None

    def _secret(self, key: Key) -> bytes:
        known = self._secrets.get(key.key_id)
        if known is None:
            known = self._secrets[key.key_id] = key.derive("access-token")
        return known


def _refusal() -> Unauthenticated:
    return Unauthenticated("The access token is not valid. Sign in with POST /api/v1/auth/login.")
