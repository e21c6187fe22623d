"""The key ring, and what hangs on it."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
from pathlib import Path

import jwt
import pytest

from adapters.crypto.key_ring import KeyRing, KeyRingFile
from adapters.crypto.passwords import Argon2PasswordHasher
from adapters.crypto.tokens import JwtAccessTokenCodec, KeyRingTokenHasher
from adapters.crypto.vault import AesVault
from adapters.randomness import RandomIdAndSecretGenerator
from domain.accounts.model import Membership
from domain.kernel.caller import Role
from domain.kernel.errors import Unauthenticated, Unavailable
from domain.kernel.ids import AccountId, IdPrefix, MembershipId, SessionId, UserId, has_id_format
from domain.sign_in.model import AccessTokenClaims
from support.manual_clock import START_MS

MEMBER = Membership(MembershipId("mbr_1"), AccountId("acc_1"), UserId("usr_1"), Role.ADMIN, START_MS)
CLAIMS = AccessTokenClaims(MEMBER.user_id, MEMBER.membership_id, MEMBER.account_id, SessionId("ses_1"), START_MS + 900_000)


def rotated(ring: KeyRing) -> KeyRing:
    return KeyRing((*KeyRing.generate().keys, *ring.keys))


def test_the_key_ring_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    made = KeyRingFile(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert KeyRingFile(path).keys == made.keys
    path.chmod(0o644)
    with pytest.raises(PermissionError):
        KeyRingFile(path)


@pytest.mark.parametrize("text", ["", "secret", "k1:AAAA", "key1:!!!!", "key1:" + base64.b64encode(b"x" * 31).decode()])
def test_an_invalid_key_ring_is_rejected_without_quoting_it(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        KeyRing.parse(text)
    assert not text or text.partition(":")[2] not in str(caught.value) or ":" not in text


def test_two_keys_with_the_same_id_are_rejected() -> None:
    text = KeyRing.generate().to_text()
    with pytest.raises(ValueError, match="same id"):
        KeyRing.parse(f"{text},{text}")


def test_a_key_ring_does_not_show_its_secrets() -> None:
    ring = KeyRing.generate()
    assert repr(ring.newest.secret) not in repr(ring)


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


def test_a_sealed_secret_opens_only_for_its_row() -> None:
    vault = AesVault(ring=KeyRing.generate())
    sealed = vault.seal("hünter2", "dev_1")
    assert vault.open(sealed, "dev_1") == "hünter2"
    assert b"nter2" not in sealed
    for bad, place in (
        (sealed, "dev_2"),
        (sealed[:-1], "dev_1"),
        (sealed[:-1] + bytes([sealed[-1] ^ 1]), "dev_1"),
        (b"", "x"),
        (b"\1\xff", "x"),
    ):
        with pytest.raises(Unavailable) as caught:
            vault.open(bad, place)
        assert caught.value.code == "SECRET_UNREADABLE"


def test_sealing_the_same_secret_twice_gives_different_bytes() -> None:
    vault = AesVault(ring=KeyRing.generate())
    assert vault.seal("a", "b") != vault.seal("a", "b")


def test_after_a_rotation_old_secrets_open_and_need_rekeying() -> None:
    ring = KeyRing.generate()
    old, new = AesVault(ring=ring), AesVault(ring=rotated(ring))
    sealed = old.seal("s", "dev_1")
    assert new.open(sealed, "dev_1") == "s"
    assert (old.needs_rekey(sealed), new.needs_rekey(sealed)) == (False, True)
    assert not new.needs_rekey(new.seal("s", "dev_1"))


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


async def test_argon2_knows_the_right_password_and_outdated_parameters() -> None:
    cheap, dear = Argon2PasswordHasher(memory_kib=8, passes=1), Argon2PasswordHasher(memory_kib=16, passes=1)
    made = await cheap.hash("pässword")
    assert made.startswith("$argon2id$")
    assert await dear.verify(made, "pässword")
    assert not await dear.verify(made, "password")
    assert not await dear.verify("no hash", "password")
    await cheap.verify_dummy("x")
    assert (cheap.needs_rehash(made), dear.needs_rehash(made), dear.needs_rehash("no hash")) == (False, True, True)
    cheap.close()
    dear.close()


async def test_a_flood_of_logins_is_rejected_instead_of_queued_without_bound() -> None:
    hasher = Argon2PasswordHasher(threads=1, queue=2, memory_kib=8, passes=1)
    results = await asyncio.gather(*(hasher.hash("x") for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(result, Unavailable) for result in results) == 17
    await hasher.hash("and then it works again")
    hasher.close()


def test_ids_have_the_documented_format() -> None:
    ids = RandomIdAndSecretGenerator()
    assert all(has_id_format(prefix, ids.new_id(prefix)) for prefix in IdPrefix)
    assert {len(ids.random_digits(6)) for _ in range(2000)} == {6}
    assert ids.random_alphanumeric(32).isalnum()
    assert len(ids.random_bytes(32)) == 32


def test_ids_of_frequent_resources_sort_by_creation_time() -> None:
    clock = iter(1_800_000_000_000 + 7 * number for number in range(500))
    ids = RandomIdAndSecretGenerator(lambda: next(clock))
    made = [ids.new_id(IdPrefix.EXECUTION) for _ in range(500)]
    assert made == sorted(set(made))
    assert all(has_id_format(IdPrefix.EXECUTION, one) and len(one) == len("exe_") + 20 for one in made)
    assert len({one[12:] for one in made}) == 500


def test_ids_of_devices_and_keys_do_not_reveal_their_time() -> None:
    ids = RandomIdAndSecretGenerator(lambda: 1_800_000_000_000)
    for prefix in (IdPrefix.DEVICE, IdPrefix.KEY, IdPrefix.ACCOUNT, IdPrefix.GRANT):
        assert len({ids.new_id(prefix)[len(prefix) + 1 :][:3] for _ in range(300)}) > 100
