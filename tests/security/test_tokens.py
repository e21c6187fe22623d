"""Only tokens that this service signed, for itself, and that are valid now are accepted.

Forgeries use the right key where that makes them stronger: everything except the secrecy of the key is tested.
"""

from __future__ import annotations

import base64
import hmac
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from adapters.crypto.key_ring import KeyRing
from domain.team.operator import CreatedAccountWithOwner
from support.in_process_app import InProcessApp, in_process_app
from support.manual_clock import START_MS

NOW = START_MS // 1000
RSA = rsa.generate_private_key(65_537, 2_048)
PRIVATE = RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
PUBLIC = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


class Forge:
    """Makes tokens of this installation's shape with one defect."""

    def __init__(self, program: InProcessApp, account: CreatedAccountWithOwner, session_id: str) -> None:
        self.ring: KeyRing = program.program.adapters.key_ring
        self.key = self.ring.newest.derive("access-token")
        member = account.owner.membership
        self.claims: dict[str, Any] = {
            "iss": "latchboard",
            "aud": "latchboard-api",
            "sub": member.user_id,
            "acc": member.account_id,
            "mbr": member.membership_id,
            "sid": session_id,
            "iat": NOW,
            "exp": NOW + 900,
        }

    def token(self, *, header: dict[str, Any] | None = None, alg: str = "HS256", key: bytes | None = None, **claims: Any) -> str:
        kept = {name: value for name, value in (self.claims | claims).items() if value is not ...}
        headers = {name: value for name, value in ({"kid": self.ring.newest.key_id} | (header or {})).items() if value is not ...}
        return jwt.encode(kept, self.key if key is None else key, algorithm=alg, headers=headers)

    def unsigned(self, alg: str, signature: str = "") -> str:
        head = {"typ": "JWT", "alg": alg, "kid": self.ring.newest.key_id}
        return f"{_b64(json.dumps(head).encode())}.{_b64(json.dumps(self.claims).encode())}.{signature}"

    def signed_by_hand(self, head: bytes, claims: bytes, key: bytes | None = None) -> str:
        """JSON that no library would write, correctly signed unless another key is given."""
        signing = f"{_b64(head)}.{_b64(claims)}"
        return f"{signing}.{_b64(hmac.digest(self.key if key is None else key, signing.encode(), 'sha256'))}"


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@pytest.fixture
async def program() -> AsyncIterator[InProcessApp]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as made:
            yield made


@pytest.fixture
async def forge(program: InProcessApp) -> Forge:
    return await forge_in(program)


async def forge_in(program: InProcessApp) -> Forge:
    account = await program.create_account("ada@example.com")
    [session] = await (await program.sign_in("ada@example.com")).send_ok("GET", "/auth/sessions")
    return Forge(program, account, session["sessionId"])


def forgeries(forge: Forge) -> dict[str, str]:
    kid = forge.ring.newest.key_id
    good = forge.token()
    head, claims, signature = good.split(".")
    head_now = json.dumps({"alg": "HS256", "kid": kid}).encode()
    claims_now = json.dumps(forge.claims).encode()
    return {
        **{f"alg {alg}": forge.unsigned(alg) for alg in ("none", "None", "NONE", "nOnE", "", "HS256")},
        "alg none with the signature of a good one": forge.unsigned("none", signature),
        "the signature left out": f"{head}.{claims}.",
        "two parts": f"{head}.{claims}",
        "four parts": f"{good}.{signature}",
        "another signature": f"{head}.{claims}.{_b64(b'x' * 32)}",
        "other claims under the same signature": f"{head}.{_b64(json.dumps(forge.claims | {'mbr': 'mbr_' + 'a' * 20}).encode())}.{signature}",
        **{f"{alg} with the right key": forge.token(alg=alg, key=forge.key.ljust(64, b"\0")) for alg in ("HS384", "HS512")},
        "RS256 with a key of one's own": forge.token(alg="RS256", key=PRIVATE),
        "RS256 that brings its key": forge.token(alg="RS256", key=PRIVATE, header={"jwk": _jwk(), "jku": "http://127.0.0.1:9/"}),
        "HS256 under a public key": forge.signed_by_hand(head_now, claims_now, PUBLIC),
        "HS256 under nothing": forge.signed_by_hand(head_now, claims_now, b""),
        "HS256 under the ring's own secret": forge.token(key=forge.ring.newest.secret),
        "HS256 under a key for another purpose": forge.token(key=forge.ring.newest.derive("digest")),
        **{f"kid {kid!r}": forge.token(header={"kid": kid}) for kid in ("other", "", "../../dev/null", "' OR 1=1", kid.upper())},
        "no kid": forge.token(header={"kid": ...}),
        "kid a list": forge.signed_by_hand(json.dumps({"alg": "HS256", "kid": [kid]}).encode(), claims_now),
        "crit that nobody knows": forge.token(header={"crit": ["exp"], "b64": False}),
        **{f"without {name}": forge.token(**_without(name)) for name in forge.claims},
        "another issuer": forge.token(iss="somebody"),
        "another audience": forge.token(aud="latchboard-web"),
        "the audience in another case": forge.token(aud="Latchboard-API"),
        "issued an hour ahead": forge.token(iat=NOW + 3600, exp=NOW + 4500),
        "just expired": forge.token(exp=NOW),
        "long expired": forge.token(exp=1),
        **{f"exp {value!r}": forge.token(exp=value) for value in ("never", str(NOW + 900), NOW + 0.5, True, [NOW + 900], -1)},
        "exp NaN": forge.signed_by_hand(head_now, json.dumps(forge.claims | {"exp": float("nan")}).encode()),
        "exp infinite": forge.signed_by_hand(head_now, json.dumps(forge.claims | {"exp": float("inf")}).encode()),
        "iat text": forge.token(iat=str(NOW)),
        "a subject that is no text": forge.signed_by_hand(head_now, json.dumps(forge.claims | {"sub": 7}).encode()),
        "somebody else's subject": forge.token(sub="usr_" + "a" * 20),
        "somebody else's account": forge.token(acc="acc_" + "a" * 20),
        "a membership that is none": forge.token(mbr="mbr_" + "a" * 20),
        "claims that are a list": forge.signed_by_hand(head_now, b"[]"),
        "claims that are no JSON": forge.signed_by_hand(head_now, b"{"),
        "claims nested deep": forge.signed_by_hand(head_now, b'{"a":' * 400 + b"1" + b"}" * 400),
        "a very long token": forge.token(extra="a" * 4_000),
        "a refresh token": "A" * 48,
    }


def _without(name: str) -> dict[str, Any]:
    return {name: ...}


def _jwk() -> dict[str, Any]:
    return dict(json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key())))


async def test_a_valid_token_is_accepted(program: InProcessApp, forge: Forge) -> None:
    """Otherwise the tests below would pass for the wrong reason."""
    for token in (forge.token(), forge.token(iat=NOW + 30)):
        assert (await program.caller(Authorization=f"Bearer {token}").send("GET", "/auth/me")).status_code == 200


async def test_a_forged_token_is_refused(program: InProcessApp, forge: Forge) -> None:
    wrong: list[str] = []
    for name, token in forgeries(forge).items():
        answer = await program.caller(Authorization=f"Bearer {token}").send("GET", "/auth/me")
        expected = "TOKEN_EXPIRED" if name in ("just expired", "long expired", "exp -1") else "UNAUTHENTICATED"
        if answer.status_code != 401 or answer.json()["error"] != expected:
            wrong.append(f"{name}: {answer.status_code} {answer.text[:120]}")
    assert wrong == []


async def test_a_token_is_verified_on_each_request(program: InProcessApp, forge: Forge) -> None:
    caller = program.caller(Authorization=f"Bearer {forge.token()}")
    assert (await caller.send("GET", "/auth/me")).status_code == 200
    program.clock.forward(minutes=15)
    assert (await caller.send("GET", "/auth/me")).json()["error"] == "TOKEN_EXPIRED"


async def test_a_token_of_another_installation_is_refused(program: InProcessApp, forge: Forge) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as other:
            stranger = await forge_in(other)
            claims = {name: forge.claims[name] for name in ("sub", "acc", "mbr", "sid")}
            for token in (stranger.token(**claims), stranger.token(header={"kid": forge.ring.newest.key_id}, **claims)):
                assert (await program.caller(Authorization=f"Bearer {token}").send("GET", "/auth/me")).status_code == 401


async def test_credentials_count_only_in_the_documented_places(program: InProcessApp, forge: Forge) -> None:
    token = forge.token()
    misplaced = [
        {"X_Api_Key": token},
        {"Cookie": f"Authorization=Bearer {token}"},
        {"Proxy_Authorization": f"Bearer {token}"},
        {"Authorization": token},
        {"Authorization": f"Basic {token}"},
        {"Authorization": f"Bearer,{token}"},
        {"X_Original_Authorization": f"Bearer {token}"},
        {"X_User": forge.claims["sub"]},
        {"X_Forwarded_User": "ada@example.com"},
    ]
    for headers in misplaced:
        assert (await program.caller(**headers).send("GET", "/auth/me")).status_code == 401, headers
    assert (await program.caller().send("GET", f"/auth/me?token={token}")).status_code == 401
    override = {"Authorization": f"Bearer {token}", "X-HTTP-Method-Override": "DELETE", "X-Original-URL": "/api/v1/keys"}
    assert "email" in (await program.caller(**override).send_ok("GET", "/auth/me"))
