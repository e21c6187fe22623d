"""Grants and approvals through the HTTP application, over the in-memory storage."""

from __future__ import annotations

from typing import Any

import pytest
from quart.typing import TestClientProtocol as Client

from adapters.http.api.approvals import approvals_blueprint
from adapters.http.api.commands import commands_blueprint
from adapters.http.api.grants import grants_blueprint
from adapters.http.app import create_app
from domain.devices.model import Device
from domain.kernel.caller import Role
from support.device_app import RoleNameAuthenticator, as_key, as_person
from support.schedule_world import ScheduleWorld


@pytest.fixture
async def world() -> ScheduleWorld:
    world = ScheduleWorld()
    await world.populate()
    return world


@pytest.fixture
def client(world: ScheduleWorld) -> Client:
    app = create_app(
        blueprints=[
            grants_blueprint(world.granting, world.access),
            approvals_blueprint(world.approvals),
            commands_blueprint(world.commands, world.waiter, world.definitions, world.control, world.cancellation),
        ],
        authenticator=RoleNameAuthenticator(world),
        clock=world.clock,
    )
    return app.test_client()


async def call(client: Client, method: str, path: str, body: Any = None, *, who: dict[str, str] | None = None) -> tuple[int, Any]:
    sent = {} if body is None else {"json": body}
    response = await client.open(f"/api/v1{path}", method=method, headers=who or as_person(), **sent)
    return response.status_code, await response.get_json()


async def test_a_grant_is_created_listed_changed_and_deleted(client: Client, world: ScheduleWorld) -> None:
    device, key = await world.device(), await world.key()
    path = f"/devices/{device.device_id}/grants"
    body = {
        "commands": ["ON"],
        "apiKeyId": key.key_id,
        "appliesVia": "device",
        "scope": "WRITE",
        "expiresAt": "2030-01-01T00:00:00Z",
        "activeDays": [1, 2],
        "activeFromMinute": 480,
        "activeToMinute": 1020,
        "timezone": "Europe/Berlin",
        "rateLimitPerMinute": 10,
    }
    status, made = await call(client, "POST", path, body)
    _, [listed] = await call(client, "GET", path)
    assert (status, made) == (201, listed)
    assert (listed["grantId"], listed["expiresAt"]) == (made["grantId"], "2030-01-01T00:00:00.000Z")
    assert listed["subject"] == {"type": "apikey", "id": key.key_id, "name": "Robot"}
    assert {name: listed[name] for name in body if name not in ("apiKeyId", "expiresAt")} == {
        name: body[name] for name in body if name not in ("apiKeyId", "expiresAt")
    }
    change = {"expiresAt": None, "activeFromMinute": None, "activeToMinute": None, "commands": ["*"]}
    status, changed = await call(client, "PATCH", f"{path}/{made['grantId']}", change)
    _, [listed] = await call(client, "GET", path)
    assert (status, changed) == (200, listed | {"ok": True})
    assert (listed["expiresAt"], listed["activeFromMinute"], listed["commands"]) == (None, None, ["*"])
    assert listed["activeDays"] == [1, 2]
    assert await call(client, "DELETE", f"{path}/{made['grantId']}") == (200, {"ok": True})
    assert await call(client, "GET", path) == (200, [])
    assert (await call(client, "DELETE", f"{path}/{made['grantId']}"))[0] == 404


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"commands": []}, "commands"),
        ({"commands": "ON"}, "commands"),
        ({"commands": ["on"]}, "commands.0"),
        ({"commands": None}, "commands"),
        ({"scope": "ROOT"}, "scope"),
        ({"appliesVia": "account"}, "appliesVia"),
        ({"expiresAt": "2020-01-01T00:00:00Z"}, "expiresAt"),
        ({"expiresAt": "tomorrow"}, "expiresAt"),
        ({"expiresAt": "2030-01-01T00:00:00"}, "expiresAt"),
        ({"activeDays": [7]}, "activeDays.0"),
        ({"activeFromMinute": 5}, "activeToMinute"),
        ({"activeToMinute": 1440, "activeFromMinute": 0}, "activeToMinute"),
        ({"activeFromMinute": "8", "activeToMinute": 9}, "activeFromMinute"),
        ({"timezone": "Mars/Base"}, "timezone"),
        ({"rateLimitPerMinute": 0}, "rateLimitPerMinute"),
        ({"rateLimitPerMinute": 1001}, "rateLimitPerMinute"),
        ({"apiKeyId": None}, "apiKeyId"),
        ({"apiKeyId": "key_00000000000000000099"}, "apiKeyId"),
        ({"membershipId": "mbr_00000000000000000002"}, "membershipId"),
        ({"rateLimit": 5}, "rateLimit"),
    ],
)
async def test_bad_input_is_a_400_that_names_the_field(
    client: Client, world: ScheduleWorld, change: dict[str, Any], field: str
) -> None:
    device, key = await world.device(), await world.key()
    body = {"commands": ["ON"], "apiKeyId": key.key_id} | change
    status, answer = await call(client, "POST", f"/devices/{device.device_id}/grants", body)
    assert (status, answer["error"]) == (400, "VALIDATION_ERROR")
    assert field in [detail["field"] for detail in answer["details"]]


async def test_an_unknown_command_is_granted_with_a_warning(client: Client, world: ScheduleWorld) -> None:
    device, key = await world.device(), await world.key()
    body = {"commands": ["FLY"], "apiKeyId": key.key_id}
    status, made = await call(client, "POST", f"/devices/{device.device_id}/grants", body)
    assert (status, [detail["field"] for detail in made["details"]]) == (201, ["commands.0"])
    path = f"/devices/{device.device_id}/grants/{made['grantId']}"
    status, changed = await call(client, "PATCH", path, {"commands": ["ON", "SWIM"]})
    assert (status, changed["ok"], changed["details"][0]["field"]) == (200, True, "commands.1")


async def test_a_key_cannot_grant(client: Client, world: ScheduleWorld) -> None:
    device, key = await world.device(), await world.key()
    status, answer = await call(client, "GET", f"/devices/{device.device_id}/grants", who=as_key(key))
    assert (status, answer["error"]) == (403, "SESSION_REQUIRED")


async def test_an_exhausted_grant_answers_429_with_its_policy(client: Client, world: ScheduleWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["ON"]), rate_limit_per_minute=1)
    path = f"/devices/{device.device_id}/command/on"
    assert (await call(client, "POST", path, who=as_key(key)))[0] == 200
    response = await client.post(f"/api/v1{path}", headers=as_key(key))
    assert response.status_code == 429
    assert response.headers["Retry-After"] == "60"
    assert response.headers["RateLimit-Policy"] == '"grant";q=1;w=60'
    status, reported = await call(client, "GET", f"/devices/{device.device_id}/access?cmd=ON&apiKeyId={key.key_id}")
    assert status == 200
    assert (reported["allowed"], reported["code"], reported["passesAt"]) == (False, "RATE_LIMITED", "2027-01-15T08:01:00.000Z")
    assert [(one["allowed"], one["code"]) for one in reported["grants"]] == [(False, "RATE_LIMITED")]


async def waiting(client: Client, world: ScheduleWorld) -> tuple[Device, str]:
    device = await world.device()
    await world.define(device, "FLUSH", requires_approval=True)
    key = await world.key((device.device_id, ["FLUSH"]))
    status, answer = await call(client, "POST", f"/devices/{device.device_id}/command", {"cmd": "FLUSH"}, who=as_key(key))
    assert (status, answer["approvalRequired"]) == (202, True)
    return device, answer["approvalId"]


async def test_a_waiting_command_is_listed_and_approved(client: Client, world: ScheduleWorld) -> None:
    device, approval_id = await waiting(client, world)
    path = f"/devices/{device.device_id}/approvals"
    _, [listed] = await call(client, "GET", path)
    assert listed["requestedBy"]["id"].startswith("key_")
    assert listed == {
        "approvalId": approval_id,
        "deviceId": device.device_id,
        "cmd": "FLUSH",
        "channel": 1,
        "params": None,
        "status": "PENDING",
        "createdAt": "2027-01-15T08:00:00.000Z",
        "expiresAt": "2027-01-16T08:00:00.000Z",
        "requestedBy": {"id": listed["requestedBy"]["id"], "name": "Robot"},
        "reason": None,
        "decidedBy": None,
        "decidedAt": None,
        "note": None,
        "executionId": None,
    }
    status, answer = await call(client, "POST", f"{path}/{approval_id}/approve", who=as_person(Role.ADMIN))
    assert (status, answer["ok"]) == (200, True)
    _, [listed] = await call(client, "GET", "/approvals?status=APPROVED")
    assert listed["executionId"] == answer["executionId"]
    status, answer = await call(client, "POST", f"{path}/{approval_id}/deny")
    assert (status, answer["error"]) == (409, "ALREADY_DECIDED")


async def test_a_denial_needs_an_admin(client: Client, world: ScheduleWorld) -> None:
    device, approval_id = await waiting(client, world)
    path = f"/devices/{device.device_id}/approvals/{approval_id}/deny"
    assert (await call(client, "POST", path, who=as_person(Role.MEMBER)))[0] == 403
    status, denied = await call(client, "POST", path)
    shown = await call(client, "GET", path.removesuffix("/deny"))
    assert (status, denied) == (200, shown[1] | {"ok": True})
    assert await call(client, "GET", "/approvals?status=PENDING") == (200, [])
    assert (await call(client, "GET", "/approvals?status=LOST"))[0] == 400
