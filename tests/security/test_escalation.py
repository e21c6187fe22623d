"""Nobody gains a permission by editing something else: a definition, a project, a type, a schedule, a role."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}


@dataclass
class Plant:
    """An Owner, a Member, a device of the default project, and a project on which the Member has every grant."""

    program: InProcessApp
    owner: ApiCaller
    member: ApiCaller
    membership_id: str
    device: str
    project_id: str

    async def grant(self, device: str, **terms: Any) -> None:
        body = {"commands": ["*"], "membershipId": self.membership_id, **terms}
        await self.owner.send_ok("POST", f"{device}/grants", body)

    async def sends(self, cmd: str) -> int:
        return (await self.member.send("POST", f"{self.device}/command", {"cmd": cmd})).status_code

    async def registered(self, **fields: Any) -> str:
        device_id = (await self.owner.send_ok("POST", "/devices/register", NEW | fields))["deviceId"]
        await self.owner.send_ok("POST", f"/devices/{device_id}/credentials", {})
        return f"/devices/{device_id}"


@pytest.fixture
async def plant() -> AsyncIterator[Plant]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as program:
            account = await program.create_account("owner@example.com")
            membership_id = await program.create_member(account, "member@example.com", Role.MEMBER)
            owner, member = await program.sign_in("owner@example.com"), await program.sign_in("member@example.com")
            project_id = (await owner.send_ok("POST", "/projects", {"name": "Playground"}))["projectId"]
            made = Plant(program, owner, member, membership_id, "", project_id)
            made.device = await made.registered()
            yield made


async def test_a_member_cannot_move_a_device_into_the_reach_of_their_grant(plant: Plant) -> None:
    await plant.grant(await plant.registered(projectId=plant.project_id), appliesVia="project")
    assert await plant.sends("ON") == 403
    moved = await plant.member.send("PUT", plant.device, {"projectId": plant.project_id})
    assert (moved.status_code, await plant.sends("ON")) == (403, 403)


async def test_a_member_cannot_move_a_device_out_of_the_reach_of_a_grant(plant: Plant) -> None:
    watched = await plant.registered(projectId=plant.project_id)
    default = (await plant.owner.send_ok("GET", plant.device))["project"]["projectId"]
    assert (await plant.member.send("PUT", watched, {"projectId": default})).status_code == 403
    same = await plant.member.send("PUT", watched, {"projectId": plant.project_id, "name": "Renamed"})
    assert same.status_code == 200


async def test_an_admin_moves_no_device_while_a_request_for_it_waits(plant: Plant) -> None:
    """Their own key could have more commands in the other project."""
    await plant.owner.send_ok("POST", "/members", _person("admin", "Admin"))
    admin = await plant.program.sign_in("admin@example.com")
    await plant.owner.send_ok("POST", f"{plant.device}/commands", {"name": "FLUSH", "label": "Flush", "requiresApproval": True})
    key = await admin.send_ok("POST", "/keys", {"name": "agent"})
    await admin.send_ok("POST", f"{plant.device}/grants", {"commands": ["FLUSH"], "apiKeyId": key["keyId"]})
    agent = plant.program.caller(X_Api_Key=key["key"])
    await agent.send_ok("POST", f"{plant.device}/command", {"cmd": "FLUSH"})
    moved = await admin.send("PUT", plant.device, {"projectId": plant.project_id})
    assert (moved.status_code, moved.json()["error"]) == (409, "REQUEST_PENDING")
    await plant.owner.send_ok("PUT", plant.device, {"projectId": plant.project_id})


@pytest.mark.parametrize("cmd", ["ON", "POWER"])
async def test_a_member_cannot_turn_an_action_into_a_query(plant: Plant, cmd: str) -> None:
    await plant.grant(plant.device, scope="READ")
    new = {"name": cmd, "label": cmd, "kind": "QUERY"}
    assert (await plant.member.send("POST", f"{plant.device}/commands", new)).status_code in (400, 403)
    assert await plant.sends(cmd) in (400, 403)


async def test_a_member_cannot_edit_an_action_into_a_query(plant: Plant) -> None:
    await plant.grant(plant.device, scope="READ")
    made = await plant.owner.send_ok("POST", f"{plant.device}/commands", {"name": "SPIN", "label": "Spin"})
    path = f"{plant.device}/commands/{made['commandId']}"
    assert (await plant.member.send("PATCH", path, {"kind": "QUERY"})).status_code == 403
    assert await plant.sends("SPIN") == 403


async def test_a_member_cannot_rename_an_action_to_a_granted_command(plant: Plant) -> None:
    """A grant names the command: a renamed command is another command, for the grant and for the device."""
    await plant.grant(plant.device, commands=["BLINK"])
    made = await plant.owner.send_ok("POST", f"{plant.device}/commands", {"name": "SPIN", "label": "Spin"})
    await plant.member.send("PATCH", f"{plant.device}/commands/{made['commandId']}", {"name": "BLINK"})
    sent = await plant.member.send("POST", f"{plant.device}/command", {"cmd": "BLINK"})
    executions = (await plant.owner.send_ok("GET", f"{plant.device}/executions"))["data"]
    assert sent.status_code != 200 or [one["cmd"] for one in executions] == ["BLINK"]


@pytest.mark.parametrize("change", [{"label": "Free"}, {"requiresApproval": False}, {"name": "OTHER"}, {"kind": "QUERY"}])
async def test_a_member_cannot_remove_the_approval_requirement(plant: Plant, change: dict[str, Any]) -> None:
    await plant.grant(plant.device)
    guarded = {"name": "SPIN", "label": "Spin", "requiresApproval": True}
    made = await plant.owner.send_ok("POST", f"{plant.device}/commands", guarded)
    path = f"{plant.device}/commands/{made['commandId']}"
    assert (await plant.member.send("PATCH", path, change)).status_code == 403
    assert (await plant.member.send("DELETE", path)).status_code == 403
    assert await plant.sends("SPIN") == 202


async def test_a_member_cannot_remove_the_approval_requirement_with_the_device_type(plant: Plant) -> None:
    guarded = {"name": "ON", "label": "On", "requiresApproval": True}
    first = await plant.owner.send_ok("POST", "/device-types", {"name": "Guarded", "commands": [guarded]})
    other = await plant.owner.send_ok("POST", "/device-types", {"name": "Free", "commands": []})
    await plant.owner.send_ok("PUT", plant.device, {"deviceTypeId": first["deviceTypeId"]})
    await plant.grant(plant.device)
    for type_id in (None, other["deviceTypeId"]):
        assert (await plant.member.send("PUT", plant.device, {"deviceTypeId": type_id})).status_code == 403
    override = {"name": "ON", "label": "On"}
    assert (await plant.member.send("POST", f"{plant.device}/commands", override)).status_code == 403
    assert await plant.sends("ON") == 202


async def test_a_member_cannot_uncover_a_query_by_deleting_an_action(plant: Plant) -> None:
    query = {"name": "SPIN", "label": "Spinning?", "kind": "QUERY"}
    made = await plant.owner.send_ok("POST", "/device-types", {"name": "Sensor", "commands": [query]})
    await plant.owner.send_ok("PUT", plant.device, {"deviceTypeId": made["deviceTypeId"]})
    action = await plant.owner.send_ok("POST", f"{plant.device}/commands", {"name": "SPIN", "label": "Spin"})
    await plant.grant(plant.device, scope="READ")
    await plant.member.send("DELETE", f"{plant.device}/commands/{action['commandId']}")
    assert await plant.sends("SPIN") == 403


async def test_a_member_cannot_schedule_or_automate_a_command_that_they_may_not_send(plant: Plant) -> None:
    """Neither with a new one nor by editing an Owner's: its time, its conditions, or enabling it."""
    slot = {"slot": 1, "onTs": 1_800_003_600, "offTs": 1_800_007_200}
    await plant.program.report(plant.device.rpartition("/")[2], temperature=1)
    condition = {"metric": "temperature", "comparator": ">", "value": 30}
    rule = {"name": "Hot", "conditions": [condition], "action": {"command": "ON"}, "enabled": False}
    await plant.owner.send_ok("POST", f"{plant.device}/schedules", slot | {"enabled": False})
    rule_id = (await plant.owner.send_ok("POST", f"{plant.device}/rules", rule))["ruleId"]
    tries = [
        ("POST", "schedules", slot),
        ("PUT", "schedules", {"slot": 1, "onTs": 1_800_000_060}),
        *(("PUT", "schedules/1", change) for change in ({"enabled": True}, {"onTs": 1_800_000_060}, {"label": "mine"})),
        ("POST", "rules", rule),
        *(("PATCH", f"rules/{rule_id}", change) for change in ({"enabled": True}, {"match": "ANY"}, {"cooldownSeconds": 1})),
        ("PATCH", f"rules/{rule_id}", {"conditions": [condition | {"comparator": "<"}]}),
    ]
    for method, path, body in tries:
        answer = await plant.member.send(method, f"{plant.device}/{path}", body)
        assert (answer.status_code, answer.json()["error"]) == (403, "GRANT_MISSING"), (path, body)


async def test_an_automation_runs_as_the_member_who_saved_it_last(plant: Plant) -> None:
    """Otherwise an Owner's rule or schedule would give the Owner's rights to everyone who may edit it."""
    device_id = plant.device.rpartition("/")[2]
    await plant.program.report(device_id, temperature=1)
    condition = {"metric": "temperature", "comparator": ">", "value": 30}
    rule = {"name": "Hot", "conditions": [condition], "action": {"command": "ON"}}
    rule_id = (await plant.owner.send_ok("POST", f"{plant.device}/rules", rule))["ruleId"]
    now_s = plant.program.clock.now_ms() // 1000
    slot = {"slot": 1, "onTs": now_s + 7_200, "offTs": now_s + 10_800}
    await plant.owner.send_ok("POST", f"{plant.device}/schedules", slot)
    await plant.grant(plant.device, commands=["ON", "OFF"])
    [grant] = await plant.owner.send_ok("GET", f"{plant.device}/grants")
    await plant.member.send_ok("PATCH", f"{plant.device}/rules/{rule_id}", {"conditions": [condition | {"value": 20}]})
    await plant.member.send_ok("PUT", f"{plant.device}/schedules/1", {"onTs": now_s + 60})
    await plant.owner.send_ok("DELETE", f"{plant.device}/grants/{grant['grantId']}")
    await plant.program.report(device_id, temperature=25)
    plant.program.clock.forward(seconds=61)
    await plant.program.services.firing.fire_due(plant.program.clock.now_ms())
    assert (await plant.owner.send_ok("GET", f"{plant.device}/executions"))["data"] == []
    await plant.owner.send_ok("PATCH", f"{plant.device}/rules/{rule_id}", {"conditions": [condition | {"value": 22}]})
    await plant.program.report(device_id, temperature=10)
    await plant.program.report(device_id, temperature=25)
    [sent] = (await plant.owner.send_ok("GET", f"{plant.device}/executions"))["data"]
    assert (sent["cmd"], sent["source"]) == ("ON", "rule")


async def test_only_an_owner_makes_owners(plant: Plant) -> None:
    admin_id = (await plant.owner.send_ok("POST", "/members", _person("admin", "Admin")))["membershipId"]
    admin = await plant.program.sign_in("admin@example.com")
    for who, target in ((plant.member, plant.membership_id), (admin, admin_id)):
        assert (await who.send("PATCH", f"/members/{target}", {"role": "Owner"})).status_code == 403
    assert (await plant.member.send("PATCH", f"/members/{plant.membership_id}", {"role": "Admin"})).status_code == 403
    assert (await admin.send("POST", "/members", _person("owner2", "Owner"))).status_code == 403


async def test_a_demotion_applies_to_existing_tokens_and_keys(plant: Plant) -> None:
    admin_id = (await plant.owner.send_ok("POST", "/members", _person("admin", "Admin")))["membershipId"]
    admin = await plant.program.sign_in("admin@example.com")
    assert (await admin.send("POST", "/keys", {"name": "K"})).status_code == 201
    await plant.owner.send_ok("PATCH", f"/members/{admin_id}", {"role": "Viewer"})
    assert (await admin.send("POST", "/keys", {"name": "K"})).status_code == 403
    await plant.owner.send_ok("DELETE", f"/members/{admin_id}")
    assert (await admin.send("GET", "/devices")).status_code == 401


async def test_an_admin_cannot_approve_their_own_request(plant: Plant) -> None:
    await plant.owner.send_ok("POST", "/members", _person("admin", "Admin"))
    admin = await plant.program.sign_in("admin@example.com")
    guarded = {"name": "ON", "label": "On", "requiresApproval": True}
    await plant.owner.send_ok("POST", f"{plant.device}/commands", guarded)
    for path, body in (("command", {"cmd": "ON"}), ("command/on", None)):
        requested = await admin.send_ok("POST", f"{plant.device}/{path}", body)
        decided = await admin.send("POST", f"{plant.device}/approvals/{requested['approvalId']}/approve")
        assert (decided.status_code, decided.json()["error"]) == (403, "OWN_REQUEST")


def _person(name: str, role: str) -> dict[str, str]:
    return {"email": f"{name}@example.com", "name": name, "role": role, "password": "correct horse battery"}
