"""Approval links: signed, for one person and one request, for an hour and one decision; no looking decides; and the authority
of that person is read when they decide."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pyotp
import pytest

from domain.approvals.links import LINK_TTL_MS
from domain.kernel.caller import Role
from domain.notifications.fanout import GATHER_MS
from domain.sign_in.second_factor import MAX_WRONG_CODES
from support.authenticator import SoftwareAuthenticator
from support.empty_database import empty_postgres
from support.in_process_app import PASSWORD, ApiCaller, InProcessApp, in_process_app
from support.two_instances import DATABASES, KEY_RING

ADA, GRACE = "ada@example.com", "grace@example.com"
PUBLIC_URL = "https://latch.example"


class Gate:
    """An account with an Owner and an Admin who are both told by mail, and a robot that asks to open the gate."""

    def __init__(self, app: InProcessApp) -> None:
        self.app = app

    async def prepare(self) -> None:
        account = await self.app.create_account(ADA)
        self.owner = await self.app.sign_in(ADA)
        self.grace_id = await self.app.create_member(account, GRACE, Role.ADMIN)
        self.grace = await self.app.sign_in(GRACE)
        for person in (self.owner, self.grace):
            await person.send_ok("PUT", "/auth/notifications", {"topics": ["APPROVALS"], "mail": True})
        device = {"name": "Gate", "boardType": "ESP32", "appType": "PUMP"}
        self.device_id = (await self.owner.send_ok("POST", "/devices/register", device))["deviceId"]
        self.path = f"/devices/{self.device_id}"
        opening = {"name": "OPEN", "label": "Open", "requiresApproval": True, "paramsSchema": {"type": "object"}}
        await self.owner.send_ok("POST", f"{self.path}/commands", opening)
        await self.owner.send_ok("POST", f"{self.path}/credentials", {})
        key = await self.owner.send_ok("POST", "/keys", {"name": "Robot"})
        await self.owner.send_ok("POST", f"{self.path}/grants", {"commands": ["OPEN"], "apiKeyId": key["keyId"]})
        self.robot = self.app.caller(X_Api_Key=key["key"])

    async def ask(self, by: ApiCaller | None = None) -> tuple[str, dict[str, str]]:
        """The id of a new request, and the token of each person's link."""
        asked = {"cmd": "OPEN", "params": {"width": 2}, "reason": "a truck is here"}
        made = await (by or self.robot).send_ok("POST", f"{self.path}/command", asked)
        self.app.mail.mails.clear()
        while await self.app.services.notifications.delivery.send_due():
            pass
        links = {to: line for to, _, text in self.app.mail.mails for line in text.split() if line.startswith(PUBLIC_URL)}
        return made["approvalId"], {to: link.removeprefix(f"{PUBLIC_URL}/#/decide/") for to, link in links.items()}

    async def status(self, approval_id: str) -> str:
        return (await self.owner.send_ok("GET", f"{self.path}/approvals/{approval_id}"))["status"]

    async def preview(self, token: str) -> tuple[int, Any]:
        answer = await self.app.caller().send("POST", "/approval-links/preview", {"token": token})
        return answer.status_code, answer.json()

    async def decide(self, token: str, decision: str = "APPROVE", **more: Any) -> tuple[int, str]:
        body = {"token": token, **more}
        answer = await self.app.caller().send("POST", f"/approval-links/{decision.lower()}", body)
        return answer.status_code, answer.json().get("error", "")


@pytest.fixture(params=DATABASES)
async def gate(request: pytest.FixtureRequest) -> AsyncIterator[Gate]:
    settings: dict[str, Any] = {"public_url": PUBLIC_URL}
    if request.param == "postgres":
        settings |= {"database_url": await empty_postgres(), "secret_keys": KEY_RING}
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder), **settings) as app:
            made = Gate(app)
            await made.prepare()
            yield made


async def test_a_link_shows_the_whole_request_and_decides_it_once(gate: Gate) -> None:
    approval_id, tokens = await gate.ask()
    status, shown = await gate.preview(tokens[GRACE])
    assert status == 200
    approval = shown["approval"]
    assert (approval["cmd"], approval["params"], approval["reason"]) == ("OPEN", {"width": 2}, "a truck is here")
    assert (approval["requestedBy"]["name"], shown["deviceName"], shown["secondFactors"]) == ("Robot", "Gate", [])
    assert await gate.status(approval_id) == "PENDING"
    assert await gate.decide(tokens[GRACE], note="go on") == (200, "")
    decided = await gate.owner.send_ok("GET", f"{gate.path}/approvals/{approval_id}")
    assert (decided["status"], decided["note"]) == ("APPROVED", "go on")
    assert decided["executionId"]
    me = await gate.grace.send_ok("GET", "/auth/me")
    assert decided["decidedBy"] == f"user:{me['userId']}"
    for token in tokens.values():  # the same one again, and that of the other person
        assert await gate.decide(token) == (409, "ALREADY_DECIDED")
        assert await gate.decide(token, "DENY") == (409, "ALREADY_DECIDED")
    assert (await gate.preview(tokens[GRACE]))[1]["approval"]["status"] == "APPROVED"


async def test_a_request_can_be_denied_by_its_link(gate: Gate) -> None:
    approval_id, tokens = await gate.ask()
    assert await gate.decide(tokens[ADA], "DENY", note="not now") == (200, "")
    assert await gate.status(approval_id) == "DENIED"


async def test_no_scanner_decides_by_opening(gate: Gate) -> None:
    """The token is behind the `#`, so that no server gets it; and whatever a scanner requests with it, nothing is decided."""
    approval_id, tokens = await gate.ask()
    app = gate.app.http
    for method in ("GET", "HEAD", "OPTIONS"):
        for path in ("/", "/decide", "/api/v1/approval-links/approve", "/api/v1/approval-links/preview"):
            await app.request(method, path, params={"token": tokens[ADA]})
            await app.request(method, f"{path}/{tokens[ADA]}")
    form = {"token": tokens[ADA]}
    assert (await app.post("/api/v1/approval-links/approve", data=form)).status_code == 415
    assert await gate.status(approval_id) == "PENDING"


async def test_a_forged_or_foreign_token_is_no_link(gate: Gate) -> None:
    approval_id, tokens = await gate.ask()
    ring = gate.app.program.adapters.key_ring
    header, payload, signature = tokens[GRACE].split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    kid = jwt.get_unverified_header(tokens[GRACE])["kid"]
    own = await gate.owner.send_ok("GET", "/members")
    ada = next(one["membershipId"] for one in own if one["email"] == ADA)
    renamed = base64.urlsafe_b64encode(json.dumps(claims | {"sub": ada}).encode()).rstrip(b"=").decode()
    access_key = ring.newest.derive("access-token")
    session = gate.grace.headers["Authorization"].removeprefix("Bearer ")
    forged = [
        f"{header}.{renamed}.{signature}",  # another person
        f"{header}.{payload}.{signature[:-6]}AAAAAA",
        f"{header}.{payload}.",
        jwt.encode(claims, "", algorithm="none", headers={"kid": kid}),
        jwt.encode(claims, "k" * 32, algorithm="HS256", headers={"kid": kid}),
        jwt.encode(claims, access_key, algorithm="HS256", headers={"kid": kid}),
        jwt.encode(claims, "k" * 32, algorithm="HS256"),
        session,
        "x" * 1024,
    ]
    for token in forged:
        assert await gate.decide(token) == (400, "LINK_INVALID")
        assert (await gate.preview(token))[0] == 400
    as_session = gate.app.caller(Authorization=f"Bearer {tokens[GRACE]}")
    assert (await as_session.send("GET", "/auth/me")).status_code == 401
    assert await gate.status(approval_id) == "PENDING"


async def test_a_link_ends_after_an_hour(gate: Gate) -> None:
    approval_id, tokens = await gate.ask()
    gate.app.clock.forward(LINK_TTL_MS - 1_000)
    assert (await gate.preview(tokens[ADA]))[0] == 200
    gate.app.clock.forward(1_000)
    assert (await gate.preview(tokens[ADA]))[0] == 400
    assert await gate.decide(tokens[ADA]) == (400, "LINK_INVALID")
    gate.owner = await gate.app.sign_in(ADA)
    assert await gate.status(approval_id) == "PENDING"


async def test_whoever_was_demoted_or_removed_decides_nothing(gate: Gate) -> None:
    approval_id, tokens = await gate.ask()
    await gate.owner.send_ok("PATCH", f"/members/{gate.grace_id}", {"role": "Member"})
    for decision in ("APPROVE", "DENY"):
        assert await gate.decide(tokens[GRACE], decision) == (403, "ROLE_REQUIRED")
    await gate.owner.send_ok("DELETE", f"/members/{gate.grace_id}")
    assert await gate.decide(tokens[GRACE]) == (400, "LINK_INVALID")
    assert await gate.status(approval_id) == "PENDING"


async def test_authority_that_is_lost_while_the_decision_is_on_its_way_counts(gate: Gate) -> None:
    """Between the look at the link and the transaction that decides."""
    approval_id, tokens = await gate.ask()
    links = gate.app.services.notifications.links
    approve = gate.app.services.approvals.approve

    async def demoted_first(*args: Any, **more: Any) -> Any:
        await gate.owner.send_ok("PATCH", f"/members/{gate.grace_id}", {"role": "Viewer"})
        return await approve(*args, **more)

    links.approvals.approve = demoted_first  # type: ignore[method-assign]
    try:
        assert await gate.decide(tokens[GRACE]) == (403, "ROLE_REQUIRED")
    finally:
        del links.approvals.approve
    assert await gate.status(approval_id) == "PENDING"


async def test_a_factor_that_is_set_up_while_the_decision_is_on_its_way_is_asked_for(gate: Gate) -> None:
    approval_id, tokens = await gate.ask()
    service = gate.app.services.approvals
    for name, decision in (("approve", "APPROVE"), ("deny", "DENY")):
        original = getattr(service, name)

        async def secured_first(*args: Any, original: Any = original, **more: Any) -> Any:
            if not (await gate.grace.send_ok("GET", "/auth/second-factor"))["enabled"]:
                await _set_up_totp(gate.app, gate.grace)
            return await original(*args, **more)

        setattr(service, name, secured_first)
        assert await gate.decide(tokens[GRACE], decision) == (403, "SECOND_FACTOR_REQUIRED")
        setattr(service, name, original)
        await gate.grace.send_ok("DELETE", "/auth/second-factor")
    assert await gate.status(approval_id) == "PENDING"


async def test_nobody_is_sent_a_link_for_a_request_of_their_own_and_a_made_one_is_refused(gate: Gate) -> None:
    approval_id, tokens = await gate.ask(gate.grace)
    assert list(tokens) == [ADA]
    own = gate.app.services.notifications.link_codec.issue(
        gate.grace_id, approval_id, gate.app.clock.now_ms(), gate.app.clock.now_ms() + 60_000
    )  # type: ignore[arg-type]
    assert await gate.decide(own) == (403, "OWN_REQUEST")
    assert await gate.status(approval_id) == "PENDING"


async def test_a_new_password_ends_the_links_before_it(gate: Gate) -> None:
    """Who changes it because somebody reads along must not be decided for."""
    approval_id, tokens = await gate.ask()
    gate.app.clock.forward(1)
    body = {"currentPassword": PASSWORD, "newPassword": "another horse staple"}
    await gate.grace.send_ok("POST", "/auth/password/change", body)
    assert (await gate.preview(tokens[GRACE]))[1]["error"] == "LINK_INVALID"
    assert await gate.decide(tokens[GRACE]) == (400, "LINK_INVALID")
    assert await gate.status(approval_id) == "PENDING"
    assert await gate.decide(tokens[ADA]) == (200, "")


async def _set_up_totp(app: InProcessApp, person: ApiCaller) -> tuple[str, list[str]]:
    secret = (await person.send_ok("POST", "/auth/second-factor/totp"))["secret"]
    made = await person.send_ok("POST", "/auth/second-factor/totp/confirm", {"code": _code(app, secret)})
    app.clock.forward(seconds=30)
    return secret, made["recoveryCodes"]


def _code(app: InProcessApp, secret: str) -> str:
    return pyotp.TOTP(secret).at(app.clock.now_ms() // 1000)


@pytest.mark.parametrize("decision", ["APPROVE", "DENY"])
async def test_who_has_a_second_factor_must_show_it_for_either_decision(gate: Gate, decision: str) -> None:
    secret, codes = await _set_up_totp(gate.app, gate.grace)
    approval_id, tokens = await gate.ask()
    assert (await gate.preview(tokens[GRACE]))[1]["secondFactors"] == ["totp", "recoveryCode"]
    assert await gate.decide(tokens[GRACE], decision) == (403, "SECOND_FACTOR_REQUIRED")
    assert await gate.decide(tokens[GRACE], decision, totp="000000") == (403, "SECOND_FACTOR_INVALID")
    assert await gate.decide(tokens[GRACE], decision, recoveryCode="wrong") == (403, "SECOND_FACTOR_INVALID")
    assert await gate.status(approval_id) == "PENDING"
    shown = {"totp": _code(gate.app, secret)} if decision == "APPROVE" else {"recoveryCode": codes[0]}
    assert await gate.decide(tokens[GRACE], decision, **shown) == (200, "")
    _, again = await gate.ask()
    assert await gate.decide(again[GRACE], decision, **shown) == (403, "SECOND_FACTOR_INVALID")


async def test_wrong_codes_are_bounded(gate: Gate) -> None:
    secret, _ = await _set_up_totp(gate.app, gate.grace)
    approval_id, tokens = await gate.ask()
    for _ in range(5):
        assert await gate.decide(tokens[GRACE], totp="000000") == (403, "SECOND_FACTOR_INVALID")
    assert await gate.decide(tokens[GRACE], totp=_code(gate.app, secret)) == (429, "LOGIN_THROTTLED")
    assert await gate.status(approval_id) == "PENDING"


async def test_a_reader_of_messages_locks_nobody_out(gate: Gate) -> None:
    """Guesses by links count apart: for the bound of a quarter of an hour, and for that of the app's whole life."""
    secret, codes = await _set_up_totp(gate.app, gate.grace)
    for _ in range(MAX_WRONG_CODES // 5):
        _, tokens = await gate.ask()
        for _ in range(5):
            assert await gate.decide(tokens[GRACE], totp="000000") == (403, "SECOND_FACTOR_INVALID")
        assert (await gate.decide(tokens[GRACE], totp="000000"))[0] == 429
        gate.app.clock.forward(minutes=15)
        gate.owner = await gate.app.sign_in(ADA)
    _, tokens = await gate.ask()
    assert await gate.decide(tokens[GRACE], totp=_code(gate.app, secret)) == (403, "TOTP_LOCKED")
    for factor in ({"totp": _code(gate.app, secret)}, {"recoveryCode": codes[0]}):
        begun = await gate.app.caller().send_ok("POST", "/auth/login", {"email": GRACE, "password": PASSWORD})
        body = {"challengeToken": begun["challengeToken"], **factor}
        assert (await gate.app.caller().send("POST", "/auth/login/second-factor", body)).status_code == 200
    gate.app.clock.forward(seconds=30)
    assert await gate.decide(tokens[GRACE], totp=_code(gate.app, secret)) == (200, "")


async def test_a_passkey_signs_for_this_decision_only(gate: Gate) -> None:
    phone = SoftwareAuthenticator(PUBLIC_URL)
    options = (await gate.grace.send_ok("POST", "/auth/passkeys/options"))["publicKey"]
    await gate.grace.send_ok("POST", "/auth/passkeys", {"name": "Phone", "passkey": phone.create(options)})
    first, tokens = await gate.ask()
    gate.app.clock.forward(GATHER_MS)  # so soon after the first one it would wait to be told
    second, others = await gate.ask()

    async def answer(token: str) -> dict[str, Any]:
        asked = await gate.app.caller().send_ok("POST", "/approval-links/passkey-options", {"token": token})
        return phone.get(asked["publicKey"])

    assert (await gate.preview(tokens[GRACE]))[1]["secondFactors"] == ["passkey", "recoveryCode"]
    signed = await answer(tokens[GRACE])
    assert await gate.decide(others[GRACE], passkey=signed) == (400, "PASSKEY_REFUSED")
    sign_in = (await gate.app.caller().send_ok("POST", "/auth/login/passkey/options", {}))["publicKey"]
    assert await gate.decide(tokens[GRACE], passkey=phone.get(sign_in)) == (400, "PASSKEY_REFUSED")
    assert await gate.decide(tokens[GRACE], passkey=signed) == (200, "")
    assert [await gate.status(first), await gate.status(second)] == ["APPROVED", "PENDING"]


async def test_where_a_second_factor_is_required_nobody_without_one_decides() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder), public_url=PUBLIC_URL) as app:
            gate = Gate(app)
            await gate.prepare()
            approval_id, tokens = await gate.ask()
            links: Any = app.services.notifications.links
            links.requirement = type(links.requirement)("admins")
            assert await gate.decide(tokens[GRACE]) == (403, "SECOND_FACTOR_REQUIRED")
            assert await gate.status(approval_id) == "PENDING"


async def test_a_command_that_is_no_longer_allowed_is_not_sent_and_the_request_waits(gate: Gate) -> None:
    approval_id, tokens = await gate.ask()
    await gate.owner.send_ok("PATCH", f"{gate.path}/toggle")
    assert await gate.decide(tokens[GRACE]) == (403, "DEVICE_DISABLED")
    assert await gate.status(approval_id) == "PENDING"
    await gate.owner.send_ok("PATCH", f"{gate.path}/toggle")
    assert await gate.decide(tokens[GRACE]) == (200, "")


async def test_the_log_says_who_decided_by_a_link(gate: Gate) -> None:
    _, tokens = await gate.ask()
    await gate.decide(tokens[GRACE])
    async with gate.app.services.uow.read() as tx:
        account = await tx.memberships.get(gate.grace_id)
    found = await gate.owner.send_ok("GET", "/events?type=approval_decided")
    me = await gate.grace.send_ok("GET", "/auth/me")
    assert account is not None
    assert found["data"][0]["source"] == f"user:{me['userId']}"


async def test_signing_out_everywhere_else_ends_the_links_too(gate: Gate) -> None:
    """Who lost a phone lost its messages. It ends nothing of another person."""
    approval_id, tokens = await gate.ask()
    await gate.app.sign_in(GRACE)
    gate.app.clock.forward(1)
    await gate.grace.send_ok("DELETE", "/auth/sessions")
    assert (await gate.preview(tokens[GRACE]))[1]["error"] == "LINK_INVALID"
    assert await gate.decide(tokens[GRACE]) == (400, "LINK_INVALID")
    assert await gate.status(approval_id) == "PENDING"
    assert await gate.decide(tokens[ADA]) == (200, "")
