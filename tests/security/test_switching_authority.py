"""What switches a device needs the authority to switch it, by whatever name or way: another command with the same effect, another
place of the device, a schedule or a rule."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role
from support.empty_database import empty_postgres
from support.in_process_app import ApiCaller, InProcessApp, in_process_app
from support.two_instances import DATABASES, KEY_RING

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
GUARDED_ON = {"name": "ON", "label": "On", "requiresApproval": True}
SLOT = {"slot": 1, "onTs": 1_800_003_600, "offTs": 1_800_007_200}
HOT = {"name": "Hot", "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}], "action": {"command": "ON"}}


@dataclass
class Yard:
    """An Owner, an Admin, and a key without grants."""

    app: InProcessApp
    owner: ApiCaller
    admin: ApiCaller
    key: ApiCaller
    key_id: str

    async def registered(self, **fields: Any) -> str:
        device_id = (await self.owner.send_ok("POST", "/devices/register", NEW | fields))["deviceId"]
        await self.owner.send_ok("POST", f"/devices/{device_id}/credentials", {})
        return f"/devices/{device_id}"

    async def grant(self, place: str, *commands: str, **terms: Any) -> None:
        body = {"commands": commands or ["*"], "apiKeyId": self.key_id, **terms}
        await self.owner.send_ok("POST", f"{place}/grants", body)

    async def project(self, name: str) -> str:
        return str((await self.owner.send_ok("POST", "/projects", {"name": name}))["projectId"])

    async def service_session(self, *operations: str) -> ApiCaller:
        new = {"name": "ci", "role": "Admin", "operations": operations, "expiresAt": "2027-02-01T00:00:00Z"}
        made = await self.owner.send_ok("POST", "/service-sessions", new)
        return self.app.caller(Authorization=f"Bearer {made['token']}")


@pytest.fixture(params=DATABASES)
async def yard(request: pytest.FixtureRequest) -> AsyncIterator[Yard]:
    settings: dict[str, Any] = {}
    if request.param == "postgres":
        settings = {"database_url": await empty_postgres(), "secret_keys": KEY_RING}
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder), **settings) as program:
            account = await program.create_account("owner@example.com")
            await program.create_member(account, "admin@example.com", Role.ADMIN)
            owner, admin = await program.sign_in("owner@example.com"), await program.sign_in("admin@example.com")
            made = await owner.send_ok("POST", "/keys", {"name": "agent"})
            yield Yard(program, owner, admin, program.caller(X_Api_Key=made["key"]), made["keyId"])


def refused(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json().get("error", "")


async def stock(yard: Yard, *names: str) -> str:
    pump = await yard.registered(profile="tasmota", boardType="SONOFF_BASIC")
    for name in names:
        await yard.owner.send_ok("POST", f"{pump}/commands", {"name": name, "label": name})
    return pump


async def test_toggle_does_not_go_round_the_approval_of_on(yard: Yard) -> None:
    pump = await yard.registered()
    await yard.owner.send_ok("POST", f"{pump}/commands", GUARDED_ON)
    await yard.grant(pump)
    for caller in (yard.key, yard.admin):
        assert (await caller.send("POST", f"{pump}/command", {"cmd": "TOGGLE"})).status_code == 202
    listed = {each["name"]: each["requiresApproval"] for each in await yard.key.send_ok("GET", f"{pump}/commands")}
    assert (listed["ON"], listed["TOGGLE"], listed["OFF"]) == (True, True, False)
    own = {"name": "TOGGLE", "label": "Toggle", "requiresApproval": False}
    await yard.owner.send_ok("POST", f"{pump}/commands", own)
    assert (await yard.key.send("POST", f"{pump}/command", {"cmd": "TOGGLE"})).status_code == 202


async def test_toggle_needs_the_grants_of_on_and_off(yard: Yard) -> None:
    pump = await yard.registered()
    await yard.grant(pump, "TOGGLE", "OFF")
    answer = await yard.key.send("POST", f"{pump}/command", {"cmd": "TOGGLE"})
    assert refused(answer) == (403, "COMMAND_NOT_GRANTED")
    assert "not ON, which TOGGLE may do" in answer.json()["message"]
    access = await yard.key.send_ok("GET", f"{pump}/access?cmd=TOGGLE")
    assert (access["allowed"], access["code"]) == (False, "COMMAND_NOT_GRANTED")
    await yard.grant(pump, "ON", "OFF", "TOGGLE")
    await yard.key.send_ok("POST", f"{pump}/command", {"cmd": "TOGGLE"})


@pytest.mark.parametrize("name", ["POWER2", "POWER", "BACKLOG", "BACKLOG0", "RULE1", "EVENT", "DIMMER", "PULSETIME2"])
async def test_a_stock_command_that_switches_does_not_go_round_the_approval(yard: Yard, name: str) -> None:
    pump = await stock(yard, name)
    await yard.owner.send_ok("POST", f"{pump}/commands", GUARDED_ON)
    await yard.grant(pump)
    for params in ("ON", "OFF", None, {"anything": 1}):
        assert (await yard.key.send("POST", f"{pump}/command", {"cmd": name, "params": params})).status_code == 202
    slot = SLOT | {"onCommand": {"command": name}}
    assert refused(await yard.admin.send("POST", f"{pump}/schedules", slot)) == (400, "COMMAND_NEEDS_APPROVAL")


async def test_a_stock_command_that_switches_is_granted_with_what_it_does(yard: Yard) -> None:
    pump = await stock(yard, "POWER2", "LEDSTATE")
    await yard.grant(pump, "POWER2", "LEDSTATE")
    assert refused(await yard.key.send("POST", f"{pump}/command", {"cmd": "POWER2"})) == (403, "COMMAND_NOT_GRANTED")
    await yard.key.send_ok("POST", f"{pump}/command", {"cmd": "LEDSTATE"})


async def test_a_stock_command_that_switches_is_no_query(yard: Yard) -> None:
    pump = await yard.registered(profile="tasmota", boardType="SONOFF_BASIC")
    query = {"name": "POWER2", "label": "Second", "kind": "QUERY"}
    await yard.owner.send_ok("POST", f"{pump}/commands", query)
    await yard.grant(pump, scope="READ")
    assert refused(await yard.key.send("POST", f"{pump}/command", {"cmd": "POWER2"})) == (403, "SCOPE_TOO_NARROW")


async def test_who_moved_the_device_into_the_keys_project_does_not_approve(yard: Yard) -> None:
    project = await yard.project("Reach")
    await yard.grant(await yard.registered(projectId=project), appliesVia="project")
    pump = await yard.registered()
    await yard.owner.send_ok("POST", f"{pump}/commands", GUARDED_ON)
    await yard.admin.send_ok("PUT", pump, {"projectId": project})
    for number in range(3):  # later changes do not hide the move
        await yard.owner.send_ok("PUT", pump, {"name": f"Pump {number}"})
    asked = await yard.key.send_ok("POST", f"{pump}/command", {"cmd": "ON"})
    path = f"{pump}/approvals/{asked['approvalId']}/approve"
    assert refused(await yard.admin.send("POST", path)) == (403, "OWN_REQUEST")
    await yard.owner.send_ok("POST", path)


async def test_who_registered_the_device_in_the_keys_project_does_not_approve(yard: Yard) -> None:
    project = await yard.project("Reach")
    await yard.grant(await yard.registered(projectId=project), appliesVia="project")
    device_id = (await yard.admin.send_ok("POST", "/devices/register", NEW | {"projectId": project}))["deviceId"]
    pump = f"/devices/{device_id}"
    await yard.owner.send_ok("POST", f"{pump}/credentials", {})
    await yard.owner.send_ok("POST", f"{pump}/commands", GUARDED_ON)
    asked = await yard.key.send_ok("POST", f"{pump}/command", {"cmd": "ON"})
    answer = await yard.admin.send("POST", f"{pump}/approvals/{asked['approvalId']}/approve")
    assert refused(answer) == (403, "OWN_REQUEST")


async def test_who_gave_the_device_its_type_does_not_approve(yard: Yard) -> None:
    made = await yard.owner.send_ok("POST", "/device-types", {"name": "Pumps", "commands": [GUARDED_ON]})
    pump = await yard.registered()
    await yard.grant(pump)
    await yard.admin.send_ok("PUT", pump, {"deviceTypeId": made["deviceTypeId"]})
    asked = await yard.key.send_ok("POST", f"{pump}/command", {"cmd": "ON"})
    answer = await yard.admin.send("POST", f"{pump}/approvals/{asked['approvalId']}/approve")
    assert refused(answer) == (403, "OWN_REQUEST")


async def test_who_moved_the_device_long_before_approves(yard: Yard) -> None:
    project = await yard.project("Reach")
    await yard.grant(await yard.registered(projectId=project), appliesVia="project")
    pump = await yard.registered()
    await yard.owner.send_ok("POST", f"{pump}/commands", GUARDED_ON)
    await yard.admin.send_ok("PUT", pump, {"projectId": project})
    yard.app.clock.forward(seconds=3_601)
    admin = await yard.app.sign_in("admin@example.com")
    asked = await yard.key.send_ok("POST", f"{pump}/command", {"cmd": "ON"})
    await admin.send_ok("POST", f"{pump}/approvals/{asked['approvalId']}/approve")


@pytest.mark.parametrize("place", ["projectId", "deviceTypeId"])
async def test_a_service_session_moves_a_device_only_with_the_right_to_grant(yard: Yard, place: str) -> None:
    made = await yard.owner.send_ok("POST", "/device-types", {"name": "Pumps", "commands": []})
    target = {place: await yard.project("Reach") if place == "projectId" else made["deviceTypeId"]}
    pump = await yard.registered()
    mover = await yard.service_session("devices:write")
    await mover.send_ok("PUT", pump, {"name": "Renamed"})
    assert refused(await mover.send("PUT", pump, target)) == (403, "OPERATION_NOT_ALLOWED")
    await (await yard.service_session("devices:write", "grants:write")).send_ok("PUT", pump, target)


async def test_a_service_session_adds_to_a_granted_group_only_with_the_right_to_grant(yard: Yard) -> None:
    pump = await yard.registered()
    add = {"add": [pump.rpartition("/")[2]]}
    free, granted = [(await yard.owner.send_ok("POST", "/groups", {"name": name}))["groupId"] for name in ("Free", "Granted")]
    await yard.grant(f"/groups/{granted}")
    mover = await yard.service_session("groups:write")
    await mover.send_ok("PATCH", f"/groups/{free}/devices", add)
    assert refused(await mover.send("PATCH", f"/groups/{granted}/devices", add)) == (403, "OPERATION_NOT_ALLOWED")
    with_right = await yard.service_session("groups:write", "grants:write")
    await with_right.send_ok("PATCH", f"/groups/{granted}/devices", add)


async def test_a_fleet_file_moves_a_device_only_with_the_right_to_grant(yard: Yard) -> None:
    await yard.project("Reach")
    await yard.registered(externalId="pump-1")
    moved = {"externalId": "pump-1", **NEW, "project": "Reach"}
    body = {"document": {"version": 1, "devices": [moved]}}
    mover = await yard.service_session("devices:write", "projects:read")
    assert refused(await mover.send("POST", "/fleet/apply", body)) == (403, "OPERATION_NOT_ALLOWED")
    await (await yard.service_session("devices:write", "projects:read", "grants:write")).send_ok("POST", "/fleet/apply", body)


async def test_a_schedule_or_rule_needs_the_right_to_switch(yard: Yard) -> None:
    pump = await yard.registered(externalId="pump-1")
    device_id = pump.rpartition("/")[2]
    await yard.app.report(device_id, temperature=1)
    group = (await yard.owner.send_ok("POST", "/groups", {"name": "Pumps", "deviceIds": [device_id]}))["groupId"]
    rule_id = (await yard.owner.send_ok("POST", f"{pump}/rules", HOT))["ruleId"]
    await yard.owner.send_ok("POST", f"{pump}/schedules", SLOT)
    planner = await yard.service_session("schedules:write", "rules:write", "groups:write", "devices:write")
    device = {"externalId": "pump-1", **NEW}
    tries: list[tuple[str, str, Any]] = [
        ("POST", f"{pump}/schedules", SLOT),
        ("PUT", f"{pump}/schedules", SLOT),
        ("PUT", f"{pump}/schedules/1", {"enabled": True}),
        ("POST", f"{pump}/rules", HOT | {"name": "Other"}),
        ("PATCH", f"{pump}/rules/{rule_id}", {"enabled": True}),
        ("POST", "/fleet/apply", {"document": {"version": 1, "devices": [device | {"rules": [HOT | {"name": "Third"}]}]}}),
        ("POST", "/fleet/apply", {"document": {"version": 1, "devices": [device | {"schedules": [SLOT | {"slot": 2}]}]}}),
    ]
    for method, path, body in tries:
        assert refused(await planner.send(method, path, body)) == (403, "OPERATION_NOT_ALLOWED"), (path, body)
    for kind, body in (("schedules", SLOT), ("rules", HOT | {"name": "Fourth"})):
        answer = await planner.send("POST", f"/groups/{group}/{kind}", body)
        said = answer.json()
        codes = {each["error"] for each in said["devices"]} if answer.is_success else {said["error"]}
        assert "OPERATION_NOT_ALLOWED" in str(codes), said
    full = await yard.service_session("schedules:write", "rules:write", "commands:write")
    await full.send_ok("POST", f"{pump}/schedules", SLOT)
    await full.send_ok("POST", f"{pump}/rules", HOT | {"name": "Other"})
