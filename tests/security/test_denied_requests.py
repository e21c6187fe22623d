"""Denied requests are logged with caller, action, device and address, without the request body, and at a bounded rate."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role
from security.calls import BODIES, Ids
from security.people import People, a_key, gather
from support.in_process_app import ApiCaller, in_process_app

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
SECRET = "correct-horse-battery-staple-41"


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[People]:
    async with in_process_app(tmp_path) as program:
        yield await gather(program)


async def refusals(people: People, kind: str = "access_refused", account: str | None = None) -> list[Any]:
    """Newest first, as they are stored."""
    async with people.app.services.uow.read() as tx:
        account_id: Any = account or people.account.account.account_id
        return list(await tx.events.page(account_id, limit=500, before=None, kind=kind, device_id=None))


def who(caller: ApiCaller, people: People) -> str:
    token = caller.headers["Authorization"].removeprefix("Bearer ")
    user_id = people.app.program.adapters.tokens.verify(token, people.app.clock.now_ms()).user_id
    return f"user:{user_id}"


REFUSED_TO = {
    "GET /devices/{deviceId}/grants": "Member",
    "POST /devices/{deviceId}/grants": "Member",
    "PATCH /devices/{deviceId}/grants/{grantId}": "Viewer",
    "DELETE /devices/{deviceId}/grants/{grantId}": "Member",
    "POST /devices/{deviceId}/approvals/{approvalId}/approve": "Member",
    "POST /devices/{deviceId}/approvals/{approvalId}/deny": "Viewer",
    "POST /devices/{deviceId}/credentials": "Viewer",
    "POST /devices/{deviceId}/revoke": "Viewer",
    "DELETE /devices/{deviceId}": "Viewer",
    "PATCH /devices/{deviceId}/toggle": "Viewer",
    "POST /devices/{deviceId}/schedules": "Viewer",
    "POST /devices/{deviceId}/rules": "Viewer",
    "POST /devices/{deviceId}/command": "Member",
    "POST /members": "Member",
    "DELETE /members/{membershipId}": "Member",
    "POST /keys": "Member",
    "DELETE /keys/{keyId}": "Viewer",
    "POST /webhooks": "Member",
    "POST /auth/password/request-otp": "Member",
}


@pytest.mark.parametrize("row", REFUSED_TO)
async def test_a_denied_request_is_logged(people: People, row: str) -> None:
    ids = await people.ours.create(row)
    caller = people.callers[REFUSED_TO[row]]
    method, _, template = row.partition(" ")
    answer = await caller.send(method, template.format(**ids), BODIES[row](ids) if row in BODIES else None)
    assert answer.status_code == 403, answer.text
    [event] = await refusals(people)
    assert event.source == who(caller, people)
    assert event.address == "127.0.0.1"
    assert event.payload["code"] == answer.json()["error"]
    assert event.device_id == ids.get("deviceId")
    assert f"({row})" in event.description
    for name, value in _named(ids, row).items():
        assert event.payload[name] == value


def _named(ids: Ids, row: str) -> Ids:
    return {name: value for name, value in ids.items() if f"{{{name}}}" in row}


async def test_a_key_at_a_session_endpoint_or_without_a_grant_is_logged(people: People) -> None:
    ids = await people.ours.create("GET /devices/{deviceId}")
    key = people.callers["key"]
    for method, path, code in (
        ("GET", "/members", "SESSION_REQUIRED"),
        ("POST", f"/devices/{ids['deviceId']}/command/on", "GRANT_MISSING"),
        ("GET", f"/devices/{ids['deviceId']}/executions", "GRANT_MISSING"),
    ):
        answer = await key.send(method, path)
        assert answer.json()["error"] == code
        [event, *_] = await refusals(people)
        assert event.source.startswith("apikey:key_")
        assert event.payload["code"] == code


async def test_an_exhausted_rate_limit_is_logged(people: People) -> None:
    owner = people.callers["Owner"]
    device_id = (await people.ours.create("GET /devices/{deviceId}"))["deviceId"]
    key, key_id = await a_key(owner)
    grant = {"commands": ["*"], "apiKeyId": key_id, "rateLimitPerMinute": 1}
    await owner.send_ok("POST", f"/devices/{device_id}/grants", grant)
    first, second = [await key.send("POST", f"/devices/{device_id}/command/on") for _ in range(2)]
    assert (first.status_code, second.status_code) == (200, 429)
    assert first.headers["RateLimit-Policy"] == second.headers["RateLimit-Policy"] == '"grant";q=1;w=60'
    assert first.headers["RateLimit"] == second.headers["RateLimit"] == '"grant";r=0;t=60'
    [event] = await refusals(people)
    assert (event.payload["code"], event.device_id) == ("RATE_LIMITED", device_id)


async def test_a_disabled_key_and_a_removed_member_are_logged(people: People) -> None:
    before = len(await refusals(people))
    for stranger in ("a disabled key", "a removed member"):
        assert (await people.strangers[stranger].send("GET", "/devices")).status_code == 401
    found = await refusals(people)
    assert len(found) == before + 2
    assert {event.source.partition(":")[0] for event in found} == {"apikey", "user"}


async def test_a_request_that_logs_its_own_denial_is_logged_once(people: People) -> None:
    row = "POST /devices/{deviceId}/credentials/reveal"
    ids = await people.ours.create(row)
    device = f"/devices/{ids['deviceId']}"
    await people.callers["Owner"].send("POST", f"{device}/credentials/reveal", {"password": SECRET})
    await people.callers["Viewer"].send("POST", f"{device}/credentials/reveal", {"password": SECRET})
    assert await refusals(people) == []
    assert [event.payload["code"] for event in await refusals(people, "credentials_reveal_refused")] == [
        "ROLE_REQUIRED",
        "PASSWORD_MISMATCH",
    ]


async def test_the_log_holds_nothing_of_the_request_body(people: People) -> None:
    ids = await people.ours.create("POST /devices/{deviceId}/command")
    member = people.callers["Member"]
    bodies: list[tuple[str, Any]] = [
        (f"/devices/{ids['deviceId']}/command", {"cmd": "ON", "params": {"pin": SECRET}}),
        ("/members", {"email": "a@example.com", "name": "A", "role": "Member", "password": SECRET}),
        (f"/devices/{SECRET}/grants", {"commands": ["*"], "apiKeyId": "key_00000000000000000000"}),
        (f"/keys/{SECRET}", {}),
    ]
    for path, body in bodies:
        await member.send("POST", path, body)
        await member.send("DELETE", path)
    reported = json.dumps([[event.description, event.payload, event.source] for event in await refusals(people)])
    assert SECRET not in reported


async def test_a_request_for_another_accounts_device_is_in_no_other_log(people: People) -> None:
    ids = await people.theirs.create("GET /devices/{deviceId}")
    answer = await people.callers["Member"].send("POST", f"/devices/{ids['deviceId']}/grants", {"commands": ["*"]})
    assert answer.status_code in (400, 403, 404)
    assert all(event.device_id is None for event in await refusals(people))
    other = people.callers["other"]
    log = await other.send_ok("GET", f"/devices/{ids['deviceId']}/events")
    assert [event for event in log if event["eventType"] == "access_refused"] == []


async def test_a_flood_of_denials_is_counted_instead_of_logged_one_by_one(people: People) -> None:
    viewer = people.callers["Viewer"]
    answers = await asyncio.gather(*(viewer.send("POST", "/keys", {"name": "x"}) for _ in range(100)))
    assert {answer.status_code for answer in answers} == {403}
    assert len(await refusals(people)) == 30
    await people.app.services.denial_log.flush()
    assert len(await refusals(people)) == 30
    people.app.clock.forward(seconds=60)
    await people.app.services.denial_log.flush()
    [last, *rest] = await refusals(people)
    assert (len(rest), last.payload["count"]) == (30, 70)
    assert (await viewer.send("POST", "/keys", {"name": "x"})).status_code == 403
    assert len(await refusals(people)) == 32


async def test_throttled_logins_are_counted_in_the_log(people: People) -> None:
    await people.app.create_member(people.account, "victim@example.com", Role.MEMBER)
    nobody = people.app.caller()
    for email in ("victim@example.com", "unknown@example.com"):
        for _ in range(9):
            last = await nobody.send("POST", "/auth/login", {"email": email, "password": SECRET})
        assert last.status_code == 429
    await people.app.services.logins.flush_throttled_logins()
    [event] = await refusals(people, "login_throttled")
    assert event.description == "4 logins as victim@example.com were throttled"
    assert event.address == "127.0.0.1"
