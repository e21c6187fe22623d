"""Tokens of approval links: JWT (RFC 7519) with HS256 and a key of their own, so that an access token is no link and a link no
access token. Expiry is checked by the domain's clock. PyJWT is imported with the first link.
"""

from __future__ import annotations

from typing import Any

from adapters.crypto.key_ring import MasterKeyRing
from domain.approvals.links import ApprovalLinkClaims
from domain.kernel.clock import SECOND_MS
from domain.kernel.ids import ApprovalId, MembershipId

ALGORITHM = "HS256"
AUDIENCE = "latchboard-approval-link"
PURPOSE = "approval-link"
MAX_TOKEN_LENGTH = 1_024


class JwtApprovalLinkCodec:
    def __init__(self, ring: MasterKeyRing) -> None:
        self._key_provider = ring

    def issue(self, membership_id: MembershipId, approval_id: ApprovalId, issued_ms: int, expires_ms: int) -> str:
        import jwt

        claims = {"aud": AUDIENCE, "sub": membership_id, "apv": approval_id, "ims": issued_ms, "exp": expires_ms // SECOND_MS}
        newest = self._key_provider.newest
        return jwt.encode(claims, newest.derive(PURPOSE), algorithm=ALGORITHM, headers={"kid": newest.key_id})

    def read(self, token: str) -> ApprovalLinkClaims | None:
        import jwt

        if len(token) > MAX_TOKEN_LENGTH:
            return None
        try:
            key = self._key_provider.find(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                return None
            options: Any = {"require": ["exp", "ims", "sub", "apv", "aud"], "verify_exp": False}
            claims = jwt.decode(token, key.derive(PURPOSE), algorithms=[ALGORITHM], audience=AUDIENCE, options=options)
        except (jwt.InvalidTokenError, ValueError):
            return None
        member, approval, issued_ms, expires = (claims[name] for name in ("sub", "apv", "ims", "exp"))
        if not (isinstance(member, str) and isinstance(approval, str) and type(issued_ms) is type(expires) is int):
            return None
        return ApprovalLinkClaims(MembershipId(member), ApprovalId(approval), issued_ms, expires * SECOND_MS)
