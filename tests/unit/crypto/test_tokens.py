"""Access tokens and keyed hashes under a key ring that rotates."""

from __future__ import annotations

import base64
import json

import jwt
import pytest

from adapters.crypto.key_ring import KeyRing
from adapters.crypto.tokens import JwtAccessTokenCodec, KeyRingTokenHasher
from domain.accounts.model import Membership
from domain.kernel.caller import Role
from domain.kernel.errors import Unauthenticated
from domain.kernel.ids import AccountId, MembershipId, SessionId, UserId
from domain.sign_in.model import AccessTokenClaims
from support.manual_clock import START_MS

MEMBER = Membership(MembershipId("mbr_1"), AccountId("acc_1"), UserId("usr_1"), Role.ADMIN, START_MS)
CLAIMS = AccessTokenClaims(MEMBER.user_id, MEMBER.membership_id, MEMBER.account_id, SessionId("ses_1"), START_MS + 900_000)


def rotated(ring: KeyRing) -> KeyRing:
    return KeyRing((*KeyRing.generate().keys, *ring.keys))


def test_a_token_is_verified_by_the_issuing_ring_also_after_a_rotation() -> None:
    ring = KeyRing.generate()
    token = JwtAccessTokenCodec(ring).issue(MEMBER, CLAIMS.session_id, START_MS)
    for reader in (ring, rotated(ring)):
        assert JwtAccessTokenCodec(reader).verify(token, START_MS) == CLAIMS
    with pytest.raises(Unauthenticated):
        JwtAccessTokenCodec(KeyRing.generate()).verify(token, START_MS)


def test_a_token_expires_by_the_clock_port() -> None:
    tokens = JwtAccessTokenCodec(KeyRing.generate())
    token = tokens.issue(MEMBER, CLAIMS.session_id, START_MS)
    tokens.verify(token, START_MS + 899_999)
    with pytest.raises(Unauthenticated) as caught:
        tokens.verify(token, START_MS + 900_000)
    assert caught.value.code == "TOKEN_EXPIRED"


def forged(ring: KeyRing, *, alg: str = "HS256", kid: str | None = None, drop: str = "", **change: object) -> str:
    issued = START_MS // 1000
    claims: dict[str, object] = {
        "iss": "latchboard",
        "aud": "latchboard-api",
        "sub": "usr_1",
        "acc": "acc_1",
        "mbr": "mbr_1",
        "sid": "ses_1",
        "iat": issued,
        "exp": issued + 900,
        **change,
    }
    claims.pop(drop, None)
    derived = ring.newest.derive("access-token")
    secret = {"none": None, "HS256": derived, "HS512": derived.ljust(64, b"\0")}[alg]
    return jwt.encode(claims, secret, algorithm=alg, headers={"kid": kid or ring.newest.key_id})


@pytest.mark.parametrize(
    "flaw",
    [
        {"alg": "none"},
        {"alg": "HS512"},
        {"kid": "other"},
        {"iss": "somebody"},
        {"aud": "something"},
        {"drop": "exp"},
        {"drop": "iat"},
        {"drop": "sub"},
        {"drop": "mbr"},
        {"drop": "sid"},
        {"exp": "soon"},
        {"exp": True},
        {"sub": 7},
        {"iat": START_MS // 1000 + 3600},
    ],
)
def test_a_forged_token_is_rejected(flaw: dict[str, object]) -> None:
    ring = KeyRing.generate()
    with pytest.raises(Unauthenticated):
        JwtAccessTokenCodec(ring).verify(forged(ring, **flaw), START_MS)  # type: ignore[arg-type]


@pytest.mark.parametrize("token", ["", "a.b.c", "é.é.é", "x" * 5000, "..", "e30.e30.e30", "\ud800"])
def test_other_text_is_not_a_token(token: str) -> None:
    with pytest.raises(Unauthenticated):
        JwtAccessTokenCodec(KeyRing.generate()).verify(token, START_MS)


def test_the_key_of_a_token_is_not_the_key_of_the_ring() -> None:
    ring = KeyRing.generate()
    token = JwtAccessTokenCodec(ring).issue(MEMBER, CLAIMS.session_id, START_MS)
    head = json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))
    assert head["kid"] == ring.newest.key_id
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(token, ring.newest.secret, algorithms=["HS256"], options={"verify_aud": False})


def test_a_keyed_hash_depends_on_purpose_and_key_and_outlives_a_rotation() -> None:
    ring = KeyRing.generate()
    digest = KeyRingTokenHasher(ring)
    assert digest.hmac_sha256("otp", "1") == KeyRingTokenHasher(rotated(ring)).hmac_sha256("otp", "1")
    assert (
        len(
            {
                digest.hmac_sha256("otp", "1"),
                digest.hmac_sha256("b", "1"),
                KeyRingTokenHasher(KeyRing.generate()).hmac_sha256("otp", "1"),
            }
        )
        == 3
    )
