"""What a stolen session leaves behind. Whatever acts without the session that made it needs a fresh proof, is an event, is told
to the person on older channels, and can be ended; the list of it comes from the document. After a change of the password, and
after a sign-out everywhere, nothing is told on a channel before its owner has confirmed it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pyotp
import pytest

from adapters.http.documents.openapi import build_document
from domain.kernel.caller import Role
from domain.kernel.clock import to_iso
from domain.notifications.model import UnconditionalTopic
from domain.sign_in.policy import STEP_UP_TTL_MS
from support.authenticator import SoftwareAuthenticator
from support.empty_database import empty_postgres, sqlite_url
from support.in_process_app import PASSWORD, InProcessApp, in_process_app
from support.two_instances import DATABASES, KEY_RING

ADA, GRACE = "ada@example.com", "grace@example.com"
NTFY = {"name": "Phone", "ntfy": {"url": "https://ntfy.example", "topic": "t", "token": "tk"}}
CHANNELS = "/auth/notifications/channels"
DEVICE = {"name": "Gate", "boardType": "ESP32", "appType": "PUMP"}
NEW_PASSWORD = "another horse battery"
HALF_OF_PROOF_S = STEP_UP_TTL_MS * 3 // 5 // 1000


class Person:
    """An Owner with one channel, which is older than all that follows."""

    def __init__(self, app: InProcessApp) -> None:
        self.app = app
        self.secret = ""

    async def prepare(self) -> None:
        self.account = await self.app.create_account(ADA)
        self.grace_id = await self.app.create_member(self.account, GRACE, Role.ADMIN)
        self.caller = await self.app.sign_in(ADA)
        self.old_channel = (await self.caller.send_ok("POST", CHANNELS, NTFY))["channelId"]

    async def prove(self) -> None:
        proof = {"totp": pyotp.TOTP(self.secret).at(self.app.clock.now_ms() // 1000)} if self.secret else {"password": PASSWORD}
        await self.caller.send_ok("POST", "/auth/step-up", proof)

    async def told(self) -> list[tuple[str, str]]:
        """Channel and text of what is owed about this person's own authority; it counts once."""
        async with self.app.services.uow.write() as tx:
            due = await tx.notifications.list_due(self.app.clock.steady_ms(), 1000)
            await tx.notifications.delete([each.seq for each in due])
        return [(each.channel_id, each.text) for each in due if each.topic is UnconditionalTopic.SECURITY]

    async def events(self, kind: str) -> int:
        return int((await self.caller.send_ok("GET", f"/events?type={kind}&limit=200"))["total"])


@pytest.fixture(params=DATABASES)
async def ada(request: pytest.FixtureRequest) -> AsyncIterator[Person]:
    settings: dict[str, Any] = {}
    if request.param == "postgres":
        settings = {"database_url": await empty_postgres(), "secret_keys": KEY_RING}
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder), **settings) as app:
            made = Person(app)
            await made.prepare()
            yield made


Call = tuple[dict[str, str], Callable[[], Any]]
"""Values of the path, and the body at the moment of the call."""


def plain(body: Any) -> Callable[[Person], Awaitable[Call]]:
    async def prepare(_: Person) -> Call:
        return {}, lambda: body

    return prepare


async def a_disabled_key(ada: Person) -> Call:
    made = await ada.caller.send_ok("POST", "/keys", {"name": "Robot"})
    await ada.caller.send_ok("PATCH", f"/keys/{made['keyId']}", {"enabled": False})
    return {"keyId": made["keyId"]}, lambda: {"enabled": True}


async def a_suspended_channel(ada: Person) -> Call:
    made = await ada.caller.send_ok("POST", CHANNELS, NTFY | {"name": "Tablet"})
    await ada.caller.send_ok("DELETE", "/auth/sessions")
    await ada.caller.send_ok("POST", f"{CHANNELS}/{ada.old_channel}/confirm")
    return {"channelId": made["channelId"]}, lambda: None


async def an_invitation(ada: Person) -> Call:
    body = {"email": "joan@example.com", "name": "Joan", "role": "Admin"}
    made = await ada.caller.send_ok("POST", "/invitations", body)
    return {"invitationId": made["invitationId"]}, lambda: None


async def a_member(ada: Person) -> Call:
    return {"membershipId": ada.grace_id}, lambda: {"role": "Owner"}


async def a_device(ada: Person) -> Call:
    device_id = (await ada.caller.send_ok("POST", "/devices/register", DEVICE))["deviceId"]
    await ada.caller.send_ok("POST", f"/devices/{device_id}/credentials", {})
    return {"deviceId": device_id}, lambda: {"rotate": True}


async def an_unconfirmed_app(ada: Person) -> Call:
    secret = (await ada.caller.send_ok("POST", "/auth/second-factor/totp"))["secret"]
    return {}, lambda: {"code": pyotp.TOTP(secret).at(ada.app.clock.now_ms() // 1000)}


async def a_confirmed_app(ada: Person) -> Call:
    _, code = await an_unconfirmed_app(ada)
    ada.secret = ada.app.responses[-1].json()["secret"]
    await ada.caller.send_ok("POST", "/auth/second-factor/totp/confirm", code())
    return {}, lambda: None


async def a_passkey(ada: Person) -> Call:
    options = (await ada.caller.send_ok("POST", "/auth/passkeys/options"))["publicKey"]
    response = SoftwareAuthenticator(ada.app.program.settings.effective_public_url).create(options)
    return {}, lambda: {"name": "Key ring", "passkey": response}


async def a_service_session(ada: Person) -> Call:
    expires = to_iso(ada.app.clock.now_ms() + 86_400_000)
    return {}, lambda: {"name": "ci", "role": "Admin", "operations": ["devices:write"], "expiresAt": expires}


async def an_unused_device(ada: Person) -> Call:
    rows = {"devices": [DEVICE | {"externalId": "gate-1"}], "credentials": "NEW"}
    made = await ada.caller.send_ok("POST", "/devices/register/bulk", rows)
    return {"deviceId": made["devices"][0]["deviceId"]}, lambda: rows | {"credentials": "UNUSED"}


async def a_code(ada: Person) -> Call:
    expires = to_iso(ada.app.clock.now_ms() + 86_400_000)
    return {}, lambda: {"name": "Hall", "boardType": "ESP32", "appType": "PUMP", "maxDevices": 9, "expiresAt": expires}


CASES: dict[str, Callable[[Person], Awaitable[Call]]] = {
    f"POST {CHANNELS}": plain(NTFY | {"name": "Thief"}),
    "PUT /auth/notifications": plain({"topics": ["approvals"], "mail": True}),
    f"POST {CHANNELS}/{{channelId}}/confirm": a_suspended_channel,
    "POST /keys": plain({"name": "Robot"}),
    "PATCH /keys/{keyId}": a_disabled_key,
    "POST /service-sessions": a_service_session,
    "POST /provisioning-codes": a_code,
    "POST /invitations": plain({"email": "joan@example.com", "name": "Joan", "role": "Admin"}),
    "POST /invitations/{invitationId}/resend": an_invitation,
    "POST /members": plain({"email": "joan@example.com", "name": "Joan", "role": "Admin", "password": PASSWORD}),
    "PATCH /members/{membershipId}": a_member,
    "POST /devices/{deviceId}/credentials": a_device,
    "POST /devices/register/bulk": an_unused_device,
    "POST /fleet/apply": plain({"document": {"version": 1, "apiKeys": [{"name": "Robot"}]}}),
    "POST /auth/second-factor/totp/confirm": an_unconfirmed_app,
    "POST /auth/second-factor/recovery-codes": a_confirmed_app,
    "POST /auth/passkeys": a_passkey,
}
END_BODIES = {"PATCH /members/{membershipId}": {"role": "Admin"}}


def operations(app: InProcessApp) -> dict[str, dict[str, Any]]:
    """Every operation of the document that makes authority: its `x-authority` by method and path."""
    paths = build_document(app.program.http_app, version="0")["paths"]
    found = {f"{method.upper()} {path}": call for path, calls in paths.items() for method, call in calls.items()}
    return {row.replace(" /api/v1", " "): call["x-authority"] for row, call in found.items() if "x-authority" in call}


def filled(path: str, values: dict[str, Any]) -> str:
    return re.sub(r"\{(\w+)\}", lambda part: str(values[part[1]]), path)


async def test_every_operation_of_the_document_that_makes_authority_has_a_case(ada: Person) -> None:
    assert set(operations(ada.app)) == set(CASES)


@pytest.mark.parametrize("row", CASES)
async def test_what_outlives_a_session_needs_a_proof_is_an_event_is_told_and_ends(ada: Person, row: str) -> None:
    declared = operations(ada.app)[row]
    method, _, path = row.partition(" ")
    ada.app.clock.forward(seconds=HALF_OF_PROOF_S)
    values, body = await CASES[row](ada)
    ada.app.clock.forward(seconds=HALF_OF_PROOF_S)
    before, _ = await ada.events(declared["event"]), await ada.told()

    stolen = await ada.caller.send(method, filled(path, values), body())
    assert (stolen.status_code, stolen.json()["error"]) == (403, "STEP_UP_REQUIRED")
    assert await ada.events(declared["event"]) == before
    assert await ada.told() == []

    await ada.prove()
    made = await ada.caller.send_ok(method, filled(path, values), body())
    assert await ada.events(declared["event"]) == before + 1
    assert {channel for channel, _ in await ada.told()} == {ada.old_channel}

    if row == "POST /fleet/apply":
        [made] = await ada.caller.send_ok("GET", "/keys")
    if method == "PUT":
        made = (await ada.caller.send_ok("GET", CHANNELS))[-1]
    end_method, _, end_path = declared["end"].partition(" ")
    await ada.caller.send_ok(end_method, filled(end_path, made | values), END_BODIES.get(declared["end"]))


async def test_a_service_session_makes_what_it_was_made_for_without_a_proof_and_the_person_is_told(ada: Person) -> None:
    expires = to_iso(ada.app.clock.now_ms() + 86_400_000)
    body = {"name": "ci", "role": "Admin", "operations": ["api-keys:write"], "expiresAt": expires}
    token = (await ada.caller.send_ok("POST", "/service-sessions", body))["token"]
    robot = ada.app.caller(Authorization=f"Bearer {token}")
    ada.app.clock.forward(minutes=60)
    await ada.told()
    await robot.send_ok("POST", "/keys", {"name": "Robot"})
    assert [channel for channel, _ in await ada.told()] == [ada.old_channel]
    assert (await robot.send("POST", CHANNELS, NTFY)).status_code == 403


async def by_password(ada: Person) -> None:
    await ada.caller.send_ok("POST", "/auth/password/change", {"currentPassword": PASSWORD, "newPassword": NEW_PASSWORD})
    tokens = await ada.app.caller().send_ok("POST", "/auth/login", {"email": ADA, "password": NEW_PASSWORD})
    ada.caller = ada.app.caller(Authorization=f"Bearer {tokens['accessToken']}")


async def by_sign_out(ada: Person) -> None:
    await ada.caller.send_ok("DELETE", "/auth/sessions")


async def by_operator(ada: Person) -> None:
    await ada.app.services.operator.set_password(ADA, PASSWORD)
    ada.caller = await ada.app.sign_in(ADA)


@pytest.mark.parametrize("cut_off", [by_password, by_sign_out, by_operator])
async def test_a_channel_of_a_thief_is_told_nothing_after_the_person_has_cut_everybody_off(
    ada: Person, cut_off: Callable[[Person], Awaitable[None]]
) -> None:
    await ada.caller.send_ok("PUT", "/auth/notifications", {"topics": ["approvals", "rules"], "mail": False})
    thief = (await ada.caller.send_ok("POST", CHANNELS, NTFY | {"name": "Thief"}))["channelId"]
    await cut_off(ada)
    assert all(each["suspendedAt"] for each in await ada.caller.send_ok("GET", CHANNELS))
    refused = await ada.caller.send("POST", f"{CHANNELS}/{thief}/test")
    assert (refused.status_code, refused.json()["error"]) == (409, "CHANNEL_SUSPENDED")
    await ada.told()
    await ada.caller.send_ok("POST", f"{CHANNELS}/{ada.old_channel}/confirm")
    device_id = (await ada.caller.send_ok("POST", "/devices/register", DEVICE))["deviceId"]
    opening = {"name": "OPEN", "label": "Open", "requiresApproval": True}
    await ada.caller.send_ok("POST", f"/devices/{device_id}/commands", opening)
    await ada.caller.send_ok("POST", f"/devices/{device_id}/credentials", {})
    key = await ada.caller.send_ok("POST", "/keys", {"name": "Robot"})
    await ada.caller.send_ok("POST", f"/devices/{device_id}/grants", {"commands": ["OPEN"], "apiKeyId": key["keyId"]})
    await ada.app.caller(X_Api_Key=key["key"]).send_ok("POST", f"/devices/{device_id}/command", {"cmd": "OPEN"})
    async with ada.app.services.uow.write() as tx:
        due = await tx.notifications.list_due(ada.app.clock.steady_ms(), 1000)
    assert {each.channel_id for each in due} == {ada.old_channel}
    assert any(each.approval_id for each in due)


async def test_what_was_owed_to_a_channel_is_not_sent_once_it_is_suspended(ada: Person) -> None:
    await ada.caller.send_ok("PUT", "/auth/notifications", {"topics": ["approvals"], "mail": True})
    await ada.caller.send_ok("POST", "/keys", {"name": "Robot"})
    await ada.caller.send_ok("DELETE", "/auth/sessions")
    ada.app.mail.mails.clear()
    while await ada.app.services.notifications.delivery.send_due():
        pass
    assert ada.app.mail.mails == []


async def test_the_notice_reaches_a_person_in_their_quiet_hours_with_the_way_out(ada: Person) -> None:
    quiet = {"topics": [], "mail": True, "quietFromMinute": 0, "quietToMinute": 1439}
    await ada.caller.send_ok("PUT", "/auth/notifications", quiet)
    await ada.caller.send_ok("DELETE", f"{CHANNELS}/{ada.old_channel}")
    ada.app.mail.mails.clear()
    await ada.caller.send_ok("POST", "/keys", {"name": "Robot"})
    while await ada.app.services.notifications.delivery.send_due():
        pass
    texts = "\n".join(text for _, _, text in ada.app.mail.mails)
    assert "API key Robot" in texts
    assert "Was it not you?" in texts
    assert "/#/account" in texts


async def test_a_password_alone_reaches_only_the_set_up_of_the_second_factor_that_is_required(tmp_path: Path) -> None:
    """The allowed operations are a list; every other one of the document is refused."""
    async with in_process_app(tmp_path, require_second_factor="all") as app:
        await app.create_account(ADA)
        caller = await app.sign_in(ADA)
        paths = build_document(app.program.http_app, version="0")["paths"]
        open_ones = set()
        for path, calls in paths.items():
            for method, call in calls.items():
                if call["x-caller"] != "anyone":
                    answer = await caller.send(method.upper(), re.sub(r"\{\w+\}", "1", path), {})
                    if '"SECOND_FACTOR_REQUIRED"' not in answer.text:
                        open_ones.add(f"{method.upper()} {path.removeprefix('/api/v1')}")
        assert open_ones == {
            "GET /auth/me",
            "GET /auth/second-factor",
            "POST /auth/second-factor/totp",
            "POST /auth/second-factor/totp/confirm",
            "POST /auth/step-up",
            "POST /auth/step-up/passkey-options",
            "GET /auth/passkeys",
            "POST /auth/passkeys/options",
            "POST /auth/passkeys",
        }


async def test_a_service_session_of_a_member_without_the_required_factor_does_not_work_on(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "shared.db")
    async with in_process_app(tmp_path / "before", database_url=url, secret_keys=KEY_RING) as app:
        await app.create_account(ADA)
        caller = await app.sign_in(ADA)
        expires = to_iso(app.clock.now_ms() + 86_400_000)
        body = {"name": "ci", "role": "Viewer", "operations": ["devices:read"], "expiresAt": expires}
        token = (await caller.send_ok("POST", "/service-sessions", body))["token"]
        robot = app.caller(Authorization=f"Bearer {token}")
        assert (await robot.send("GET", "/devices")).status_code == 200
    for required in ("admins", "all"):
        async with in_process_app(
            tmp_path / required, database_url=url, secret_keys=KEY_RING, require_second_factor=required
        ) as app:
            answer = await app.caller(Authorization=f"Bearer {token}").send("GET", "/devices")
            assert (answer.status_code, answer.json()["error"]) == (403, "SECOND_FACTOR_REQUIRED")


async def grace_at(ada: Person, role: str) -> None:
    await ada.caller.send_ok("PATCH", f"/members/{ada.grace_id}", {"role": role})


async def test_what_ended_with_a_role_does_not_come_back_with_it(ada: Person) -> None:
    grace = await ada.app.sign_in(GRACE)
    expires = to_iso(ada.app.clock.now_ms() + 86_400_000)
    body = {"name": "ci", "role": "Admin", "operations": ["devices:read"], "expiresAt": expires}
    token = (await grace.send_ok("POST", "/service-sessions", body))["token"]
    robot = ada.app.caller(Authorization=f"Bearer {token}")
    lesser = (await grace.send_ok("POST", "/service-sessions", body | {"role": "Viewer"}))["token"]
    invited = await grace.send_ok("POST", "/invitations", {"email": "joan@example.com", "name": "Joan", "role": "Admin"})
    link = (
        invited["link"].rpartition("/")[2] if invited["link"] else ada.app.mail.mails[-1][2].split("/#/invitation/")[1].split()[0]
    )

    await grace_at(ada, "Member")
    await grace_at(ada, "Admin")

    assert (await robot.send("GET", "/devices")).status_code == 401
    assert (await ada.app.caller(Authorization=f"Bearer {lesser}").send("GET", "/devices")).status_code == 200
    answer = await ada.app.caller().send("POST", "/invitations/accept", {"token": link, "password": PASSWORD})
    assert (answer.status_code, answer.json()["error"]) == (409, "INVITATION_VOID")
    [listed] = await ada.caller.send_ok("GET", "/invitations")
    assert listed["status"] == "VOID"
    await ada.caller.send_ok("POST", f"/invitations/{listed['invitationId']}/resend")
    [listed] = await ada.caller.send_ok("GET", "/invitations")
    assert listed["status"] == "PENDING"
