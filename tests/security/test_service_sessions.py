"""Service sessions under attack: their role, operations, expiry, revocation, and what they never may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.feed.snapshot import FeedSnapshotAndReplayService
from domain.kernel.caller import Role
from domain.kernel.clock import to_iso
from domain.keys import authenticator
from domain.team.operator import CreatedAccountWithOwner
from domain.team.service_sessions import MAX_TTL_MS
from support.in_process_app import PASSWORD, ApiCaller, InProcessApp, in_process_app

HOUR_MS = 3_600_000
DEVICE = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[InProcessApp]:
    async with in_process_app(tmp_path) as program:
        yield program


@pytest.fixture
async def account(app: InProcessApp) -> CreatedAccountWithOwner:
    return await app.create_account("ada@example.com")


@pytest.fixture
async def ada(app: InProcessApp, account: CreatedAccountWithOwner) -> ApiCaller:
    return await app.sign_in("ada@example.com")


def a_request(app: InProcessApp, *operations: str, **fields: Any) -> dict[str, Any]:
    body = {"name": "ci", "role": "Admin", "operations": list(operations), "expiresAt": to_iso(app.clock.now_ms() + HOUR_MS)}
    return body | fields


async def program(app: InProcessApp, maker: ApiCaller, *operations: str, **fields: Any) -> tuple[ApiCaller, Any]:
    made = await maker.send_ok("POST", "/service-sessions", a_request(app, *operations, **fields))
    return app.caller(Authorization=f"Bearer {made['token']}"), made


async def code(caller: ApiCaller, method: str, path: str, body: Any = None) -> Any:
    answer = await caller.send(method, path, body)
    return answer.status_code if answer.is_success else answer.json()["error"]


async def test_it_may_what_it_was_made_for_and_the_log_names_it(app: InProcessApp, ada: ApiCaller) -> None:
    robot, made = await program(app, ada, "devices:write", "groups:read")
    assert made["token"].startswith(made["prefix"])
    assert await code(robot, "POST", "/devices/register", DEVICE) == 201
    assert await code(robot, "GET", "/devices") == 200
    assert await code(robot, "GET", "/groups") == 200
    assert await code(robot, "POST", "/groups", {"name": "Pumps"}) == "OPERATION_NOT_ALLOWED"
    assert made["lastUsedAt"] is None
    await app.services.callers.flush_last_used()
    [listed] = await ada.send_ok("GET", "/service-sessions")
    assert listed == {name: value for name, value in made.items() if name != "token"} | {"lastUsedAt": to_iso(app.clock.now_ms())}
    log = (await ada.send_ok("GET", "/events"))["data"]
    assert any(f"(service session {made['sessionId']})" in each["description"] for each in log)
    refused = [each for each in log if each["eventType"] == "access_refused"]
    assert len(refused) == 1
    assert made["token"] not in str(log)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/service-sessions", None),
        ("POST", "/service-sessions", None),
        ("GET", "/members", None),
        ("POST", "/members", {"email": "eve@example.com", "name": "Eve", "role": "Admin", "password": PASSWORD}),
        ("POST", "/auth/password/request-otp", None),
        ("POST", "/auth/second-factor/totp", None),
        ("GET", "/auth/sessions", None),
        ("DELETE", "/auth/sessions", None),
        ("POST", "/invitations", {"email": "eve@example.com", "name": "Eve", "role": "Admin"}),
        ("GET", "/keys", None),
    ],
)
async def test_it_never_manages_people_or_credentials_of_its_own(
    app: InProcessApp, ada: ApiCaller, method: str, path: str, body: Any
) -> None:
    robot, _ = await program(app, ada, "devices:write", "grants:write", "approvals:read")
    answer = body if path != "/service-sessions" or method == "GET" else a_request(app, "devices:read")
    assert await code(robot, method, path, answer) == "OPERATION_NOT_ALLOWED"


async def test_it_decides_no_approval(app: InProcessApp, ada: ApiCaller) -> None:
    refused = await ada.send("POST", "/service-sessions", a_request(app, "approvals:write"))
    assert refused.json()["details"][0]["field"] == "operations.0"
    robot, _ = await program(app, ada, "approvals:read")
    path = f"/devices/dev_{'a' * 20}/approvals/apv_{'a' * 20}/approve"
    assert await code(robot, "POST", path) == "OPERATION_NOT_ALLOWED"


AFFECTED = {"command": "Commands", "grants": "Grants", "rules": "Rules", "schedules": "Schedules"}
"""By a part of a path: the tag of the operations whose permission is needed for it. The list of a key's grants is the key's."""


def test_what_is_done_through_a_group_needs_the_permission_for_it_itself(app: InProcessApp) -> None:
    found = [found for view in app.program.http_app.view_functions.values() if (found := getattr(view, "operation", None))]
    through = [(each, tag) for each in found for part, tag in AFFECTED.items() if part in each.path.split("/")[2:]]
    assert {each.tag for each, _ in through} > {"Groups"}
    assert {each.path for each, tag in through if (each.affects or each.tag) != tag} == {"/keys/<key_id>/grants"}


async def test_groups_are_no_way_to_commands_grants_rules_and_schedules(app: InProcessApp, ada: ApiCaller) -> None:
    device_id = (await ada.send_ok("POST", "/devices/register", DEVICE))["deviceId"]
    await ada.send_ok("POST", f"/devices/{device_id}/credentials", {})
    group_id = (await ada.send_ok("POST", "/groups", {"name": "Pumps", "deviceIds": [device_id]}))["groupId"]
    key_id = (await ada.send_ok("POST", "/keys", {"name": "agent"}))["keyId"]
    robot, _ = await program(app, ada, "groups:write", "grants:read")
    grant = {"commands": ["*"], "apiKeyId": key_id}
    assert await code(robot, "GET", f"/groups/{group_id}/grants") == 200
    assert await code(robot, "POST", f"/groups/{group_id}/grants", grant) == "OPERATION_NOT_ALLOWED"
    for what, body in (("command", {"cmd": "ON"}), ("command/preview", {"cmd": "ON"}), ("schedules", {}), ("rules", {})):
        assert await code(robot, "POST", f"/groups/{group_id}/{what}", body) == "OPERATION_NOT_ALLOWED"
    assert await code(robot, "DELETE", f"/groups/{group_id}/schedules/0") == "OPERATION_NOT_ALLOWED"
    assert await ada.send_ok("GET", f"/groups/{group_id}/grants") == []
    sender, _ = await program(app, ada, "commands:write", "groups:read")
    assert await code(sender, "POST", f"/groups/{group_id}/command", {"cmd": "ON"}) == 200
    blind, _ = await program(app, ada, "commands:write")
    assert await code(blind, "POST", f"/groups/{group_id}/command", {"cmd": "ON"}) == "OPERATION_NOT_ALLOWED"


async def test_an_idempotency_key_gives_it_no_response_of_its_maker_or_of_another(app: InProcessApp, ada: ApiCaller) -> None:
    one, _ = await program(app, ada, "api-keys:write")
    other, _ = await program(app, ada, "api-keys:write")
    again = {"headers": {"Idempotency-Key": "deploy-1"}}
    answers = [await caller.send("POST", "/keys", {"name": "agent"}, **again) for caller in (ada, one, other, one)]
    assert [answer.status_code for answer in answers] == [201] * 4
    assert len({answer.json()["key"] for answer in answers}) == 3
    assert answers[1].json() == answers[3].json()


async def test_it_ends_by_time_by_hand_and_with_its_maker(
    app: InProcessApp, account: CreatedAccountWithOwner, ada: ApiCaller
) -> None:
    expiring, _ = await program(app, ada, "devices:read")
    revoked, made = await program(app, ada, "devices:read", expiresAt=to_iso(app.clock.now_ms() + 9 * HOUR_MS))
    membership_id = await app.create_member(account, "bob@example.com", Role.ADMIN)
    orphan, _ = await program(app, await app.sign_in("bob@example.com"), "devices:read")
    await ada.send_ok("DELETE", f"/service-sessions/{made['sessionId']}")
    assert await code(revoked, "GET", "/devices") == "UNAUTHENTICATED"
    assert await code(ada, "DELETE", f"/service-sessions/{made['sessionId']}") == "NOT_FOUND"
    await ada.send_ok("PATCH", f"/members/{membership_id}", {"role": "Member"})
    assert await code(orphan, "GET", "/devices") == "UNAUTHENTICATED"
    app.clock.forward(HOUR_MS)
    assert await code(expiring, "GET", "/devices") == "TOKEN_EXPIRED"


async def test_its_feed_ends_with_the_role_of_its_maker(
    app: InProcessApp, account: CreatedAccountWithOwner, ada: ApiCaller
) -> None:
    membership_id = await app.create_member(account, "bob@example.com", Role.ADMIN)
    _, made = await program(app, await app.sign_in("bob@example.com"), "events:read")
    viewer, _ = await app.services.callers.authenticate_token(made["token"], "")
    audience = FeedSnapshotAndReplayService(uow=app.services.uow, clock=app.clock)
    assert await audience.get_visibility(viewer) is not None
    await ada.send_ok("PATCH", f"/members/{membership_id}", {"role": "Member"})
    assert await audience.get_visibility(viewer) is None
    assert await audience.snapshot(viewer) is None


async def test_its_role_is_its_own_and_never_above_its_makers(
    app: InProcessApp, account: CreatedAccountWithOwner, ada: ApiCaller
) -> None:
    assert (await ada.send("POST", "/service-sessions", a_request(app, "keys:write", role="Owner"))).status_code == 400
    viewer, _ = await program(app, ada, "devices:write", role="Viewer")
    assert await code(viewer, "POST", "/devices/register", DEVICE) == "ROLE_REQUIRED"
    await app.create_member(account, "bob@example.com", Role.MEMBER)
    bob = await app.sign_in("bob@example.com")
    assert await code(bob, "POST", "/service-sessions", a_request(app, "devices:read", role="Member")) == "ROLE_REQUIRED"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"operations": ["members:write"]}, "operations.0"),
        ({"operations": ["devices:delete"]}, "operations.0"),
        ({"expiresAt": "2020-01-01T00:00:00Z"}, "expiresAt"),
        ({"expiresAt": "2099-01-01T00:00:00Z"}, "expiresAt"),
        ({"role": "Owner"}, "role"),
    ],
)
async def test_a_wrong_field_is_named(app: InProcessApp, ada: ApiCaller, fields: dict[str, Any], field: str) -> None:
    answer = await ada.send("POST", "/service-sessions", a_request(app, "devices:read") | fields)
    assert answer.status_code == 400
    assert answer.json()["details"][0]["field"] == field
    assert MAX_TTL_MS > HOUR_MS


async def test_authority_is_read_again_at_commit(app: InProcessApp, ada: ApiCaller) -> None:
    """Revoked after its authentication and before its commit: nothing is stored."""
    robot, made = await program(app, ada, "devices:write")
    callers = app.services.callers
    session, _ = await callers.authenticate_token(made["token"], "")
    await ada.send_ok("DELETE", f"/service-sessions/{made['sessionId']}")
    with pytest.raises(Exception, match="session has ended"):
        async with app.services.uow.write(session, Role.MEMBER):
            pass
    assert await code(robot, "GET", "/devices") == "UNAUTHENTICATED"


async def test_its_requests_are_limited(app: InProcessApp, ada: ApiCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "SERVICE_REQUESTS_PER_MINUTE", 2)
    robot, _ = await program(app, ada, "devices:read")
    app.clock.forward(60_000 - app.clock.now_ms() % 60_000)
    assert [await code(robot, "GET", "/devices") for _ in range(3)] == [200, 200, "RATE_LIMITED"]
    app.clock.forward(60_000)
    assert await code(robot, "GET", "/devices") == 200
