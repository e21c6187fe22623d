"""What a stolen session leaves behind. Whatever acts without the session that made it needs a fresh proof, is an event, is told
to the person on older channels, and can be ended; the list of it comes from the document. After a change of the password, and
after a sign-out everywhere, nothing is told on a channel before its owner has confirmed it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.http.documents.openapi import build_document
from domain.kernel.clock import to_iso
from security.authority_table import (
    ADA,
    CASES,
    CHANNELS,
    DEVICE,
    GRACE,
    HALF_OF_PROOF_S,
    NO_AUTHORITY,
    NTFY,
    USES,
    Person,
    a_confirmed_app,
)
from support.empty_database import empty_postgres, sqlite_url
from support.in_process_app import PASSWORD, InProcessApp, in_process_app
from support.two_instances import DATABASES, KEY_RING

NEW_PASSWORD = "another horse battery"


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


def document(app: InProcessApp) -> dict[str, dict[str, Any]]:
    """Every operation of the document, by method and path."""
    paths = build_document(app.program.http_app, version="0")["paths"]
    found = {f"{method.upper()} {path}": call for path, calls in paths.items() for method, call in calls.items()}
    return {row.replace(" /api/v1", " "): call for row, call in found.items()}


def operations(app: InProcessApp) -> dict[str, dict[str, Any]]:
    """Those that make authority: their `x-authority`."""
    return {row: call["x-authority"] for row, call in document(app).items() if "x-authority" in call}


def filled(path: str, values: dict[str, Any]) -> str:
    return re.sub(r"\{(\w+)\}", lambda part: str(values[part[1]]), path)


async def test_every_operation_of_the_document_makes_authority_or_has_a_reason_why_not(tmp_path: Path) -> None:
    """A new operation is in neither list, and fails here. Reading makes nothing, and DELETE takes away."""
    async with in_process_app(tmp_path) as app:
        everything = document(app)
        making = set(operations(app))
    assert making == set(CASES) == set(USES)
    assert not [row for row in making if row.startswith(("GET ", "DELETE "))]
    others = {row for row in everything if not row.startswith(("GET ", "DELETE "))} - making
    assert others == set(NO_AUTHORITY)
    assert {declared["end"] for declared in (everything[row]["x-authority"] for row in making)} <= set(everything)


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
    made = (await ada.caller.send_ok(method, filled(path, values), body())) or {}
    assert await ada.events(declared["event"]) == before + 1
    assert {channel for channel, _ in await ada.told()} == {ada.old_channel}

    if row == "POST /fleet/apply":
        [result] = made["objects"]
        made = result | {"keyId": result["id"]}
    if method == "PUT":
        made = (await ada.caller.send_ok("GET", CHANNELS))[-1]
    made |= values
    assert await USES[row](ada, made)
    end_method, _, end_path = declared["end"].partition(" ")
    await ada.caller.send_ok(end_method, filled(end_path, made), {"role": "Admin"} if end_method == "PATCH" else None)
    assert not await USES[row](ada, made)


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
    await ada.caller.send_ok("PUT", "/auth/notifications", {"topics": ["APPROVALS", "RULES"], "mail": False})
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


@pytest.mark.parametrize("by_factor", [False, True])
async def test_a_thief_of_a_session_silences_nobody(ada: Person, by_factor: bool) -> None:
    """Who suspends, deletes or turns off the channels of a person would go on unseen."""
    await ada.caller.send_ok("PUT", "/auth/notifications", {"topics": ["APPROVALS"], "mail": True})
    if by_factor:
        await a_confirmed_app(ada)
    ada.app.clock.forward(seconds=2 * HALF_OF_PROOF_S)
    before = await ada.caller.send_ok("GET", CHANNELS)
    for method, path, body in (
        ("DELETE", "/auth/sessions", None),
        ("DELETE", f"{CHANNELS}/{ada.old_channel}", None),
        ("PUT", "/auth/notifications", {"topics": ["APPROVALS"], "mail": False}),
    ):
        refused = await ada.caller.send(method, path, body)
        assert (refused.status_code, refused.json()["error"]) == (403, "STEP_UP_REQUIRED")
        assert await ada.caller.send_ok("GET", CHANNELS) == before
    await ada.prove()
    await ada.caller.send_ok("DELETE", "/auth/sessions")
    assert all(each["suspendedAt"] for each in await ada.caller.send_ok("GET", CHANNELS))


async def test_what_was_owed_to_a_channel_is_not_sent_once_it_is_suspended(ada: Person) -> None:
    await ada.caller.send_ok("PUT", "/auth/notifications", {"topics": ["APPROVALS"], "mail": True})
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
            "GET /auth/passkeys/{passkeyId}",
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
