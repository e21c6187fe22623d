"""Groups of devices in the composed program: members, commands with one outcome per device, schedules, rules and grants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.devices import ports
from domain.kernel.caller import Role
from domain.team.operator import CreatedAccountWithOwner
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

SOON_S = 4_000_000_000
RULE = {
    "name": "Too hot",
    "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}],
    "action": {"command": "OFF"},
}


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


async def devices(caller: ApiCaller, count: int, **fields: Any) -> list[str]:
    rows = [{"name": f"Pump {each}", "boardType": "ESP32", "appType": "PUMP"} | fields for each in range(count)]
    made = await caller.send_ok("POST", "/devices/register/bulk", {"devices": rows, "credentials": "NEW"})
    return [each["deviceId"] for each in made["devices"]]


async def group(caller: ApiCaller, members: list[str], **fields: Any) -> str:
    return str((await caller.send_ok("POST", "/groups", {"name": "Pumps", "deviceIds": members} | fields))["groupId"])


async def a_key(app: InProcessApp, owner: ApiCaller) -> tuple[ApiCaller, str]:
    made = await owner.send_ok("POST", "/keys", {"name": "Robot"})
    return app.caller(X_Api_Key=made["key"]), made["keyId"]


def outcomes(report: Any) -> dict[str, str]:
    return {each["deviceId"]: each["error"] or each["outcome"] for each in report["devices"]}


async def test_a_group_has_devices_of_its_project_and_filters_the_list(app: InProcessApp, ada: ApiCaller) -> None:
    first, second = await devices(ada, 2)
    group_id = await group(ada, [first])
    path = f"/groups/{group_id}/devices"
    assert await ada.send_ok("PATCH", path, {"add": [first, second]}) == {"added": 1, "removed": 0, "deviceCount": 2}
    assert await ada.send_ok("PATCH", path, {"remove": [first]}) == {"added": 0, "removed": 1, "deviceCount": 1}
    [found] = await ada.send_ok("GET", f"/devices?groupId={group_id}")
    assert (found["deviceId"], found["groupIds"]) == (second, [group_id])
    [listed] = await ada.send_ok("GET", "/groups")
    assert (listed["name"], listed["deviceCount"]) == ("Pumps", 1)
    assert (await ada.send("POST", "/groups", {"name": "Pumps"})).json()["error"] == "GROUP_EXISTS"

    project = (await ada.send_ok("POST", "/projects", {"name": "Greenhouse"}))["projectId"]
    [elsewhere] = await devices(ada, 1, projectId=project)
    refused = await ada.send("PATCH", path, {"add": [elsewhere]})
    assert refused.status_code == 400
    assert "another project" in refused.json()["message"]
    await ada.send_ok("PUT", f"/devices/{second}", {"projectId": project})
    assert (await ada.send_ok("GET", f"/groups/{group_id}"))["devices"] == []  # it left with its project


async def test_a_command_has_one_outcome_per_device_and_a_preview_that_sends_nothing(app: InProcessApp, ada: ApiCaller) -> None:
    plain, guarded, pending, disabled = await devices(ada, 4)
    await ada.send_ok("POST", f"/devices/{guarded}/commands", {"name": "ON", "label": "On", "requiresApproval": True})
    await ada.send_ok("PATCH", f"/devices/{disabled}/toggle")
    group_id = await group(ada, [plain, guarded, pending, disabled])
    robot, key_id = await a_key(app, ada)
    await ada.send_ok("POST", f"/groups/{group_id}/grants", {"apiKeyId": key_id, "commands": ["ON"]})
    command = {"cmd": "ON", "reason": "test"}
    expected = {plain: "QUEUED", guarded: "PENDING", pending: "QUEUED", disabled: "DEVICE_DISABLED"}

    preview = await robot.send_ok("POST", f"/groups/{group_id}/command/preview", command)
    assert outcomes(preview) == expected
    assert all(each["executionId"] is None and each["approvalId"] is None for each in preview["devices"])
    assert await ada.send_ok("GET", "/approvals") == []

    once = {"Idempotency-Key": "one"}
    sent = (await robot.send("POST", f"/groups/{group_id}/command", command, headers=once)).json()
    assert (sent["queued"], sent["waiting"], sent["refused"]) == (2, 1, 1)
    assert outcomes(sent) == expected
    again = await robot.send("POST", f"/groups/{group_id}/command", command, headers=once)
    assert again.json() == sent
    history = await robot.send_ok("GET", f"/devices/{plain}/executions")
    assert [each["executionId"] for each in history["data"]] == [sent["devices"][0]["executionId"]]
    [waiting] = await ada.send_ok("GET", "/approvals")
    assert (waiting["deviceId"], waiting["reason"]) == (guarded, "test")
    log = (await ada.send_ok("GET", "/events?type=command_sent_to_group"))["data"]
    assert [each["description"] for each in log] == ["Command ON for group Pumps: 2 queued, 1 wait, 1 refused"]


async def test_a_rate_limit_is_for_all_members_together(app: InProcessApp, ada: ApiCaller) -> None:
    group_id = await group(ada, await devices(ada, 3))
    robot, key_id = await a_key(app, ada)
    grant = {"apiKeyId": key_id, "commands": ["*"], "rateLimitPerMinute": 2}
    await ada.send_ok("POST", f"/groups/{group_id}/grants", grant)
    for path in ("command/preview", "command", "command"):
        report = await robot.send_ok("POST", f"/groups/{group_id}/{path}", {"cmd": "ON"})
        if path == "command" and report["queued"] == 0:
            break
        assert [each["error"] for each in report["devices"]] == [None, None, "RATE_LIMITED"], path
    else:
        pytest.fail("the limit was not used up")


async def test_a_grant_covers_a_new_member_at_once_and_a_removed_one_no_longer(app: InProcessApp, ada: ApiCaller) -> None:
    inside, joining = await devices(ada, 2)
    group_id = await group(ada, [inside])
    robot, key_id = await a_key(app, ada)
    made = await ada.send_ok("POST", f"/groups/{group_id}/grants", {"apiKeyId": key_id, "commands": ["ON"]})
    assert [each["deviceId"] for each in await robot.send_ok("GET", "/devices")] == [inside]
    assert (await robot.send("POST", f"/devices/{joining}/command", {"cmd": "ON"})).status_code == 403

    await ada.send_ok("PATCH", f"/groups/{group_id}/devices", {"add": [joining], "remove": [inside]})
    assert (await robot.send("POST", f"/devices/{joining}/command", {"cmd": "ON"})).status_code == 200
    assert (await robot.send("POST", f"/devices/{inside}/command", {"cmd": "ON"})).json()["error"] == "GRANT_MISSING"
    [shown] = await ada.send_ok("GET", f"/devices/{joining}/grants")
    assert (shown["grantId"], shown["appliesVia"]) == (made["grantId"], "group")
    [held] = await ada.send_ok("GET", f"/keys/{key_id}/grants")
    assert (held["group"], held["device"], held["project"]) == ({"groupId": group_id, "name": "Pumps"}, None, None)

    await ada.send_ok("PATCH", f"/groups/{group_id}/grants/{made['grantId']}", {"commands": ["OFF"]})
    assert (await robot.send("POST", f"/devices/{joining}/command", {"cmd": "ON"})).json()["error"] == "COMMAND_NOT_GRANTED"
    await ada.send_ok("DELETE", f"/groups/{group_id}")
    assert (await robot.send("POST", f"/devices/{joining}/command", {"cmd": "OFF"})).json()["error"] == "GRANT_MISSING"


async def test_a_slot_is_copied_to_all_members_and_cancelled(ada: ApiCaller) -> None:
    plain, guarded = await devices(ada, 2)
    await ada.send_ok("POST", f"/devices/{guarded}/commands", {"name": "ON", "label": "On", "requiresApproval": True})
    group_id = await group(ada, [plain, guarded])
    slot = {"slot": 1, "onTs": SOON_S, "offTs": SOON_S + 60}
    report = await ada.send_ok("POST", f"/groups/{group_id}/schedules", slot)
    assert outcomes(report) == {plain: "DONE", guarded: "COMMAND_NEEDS_APPROVAL"}
    [stored] = await ada.send_ok("GET", f"/devices/{plain}/schedules")
    assert (stored["slot"], stored["onTs"]) == (1, SOON_S)
    assert await ada.send_ok("GET", f"/devices/{guarded}/schedules") == []
    report = await ada.send_ok("DELETE", f"/groups/{group_id}/schedules/1")
    assert outcomes(report) == {plain: "DONE", guarded: "NOT_FOUND"}
    assert await ada.send_ok("GET", f"/devices/{plain}/schedules") == []


async def test_a_rule_is_made_once_on_each_member_that_can_have_it(app: InProcessApp, ada: ApiCaller) -> None:
    reporting, silent = await devices(ada, 2)
    await app.report(reporting, temperature=21)
    group_id = await group(ada, [reporting, silent])
    report = await ada.send_ok("POST", f"/groups/{group_id}/rules", RULE)
    assert outcomes(report) == {reporting: "DONE", silent: "UNKNOWN_METRIC"}
    [rule] = await ada.send_ok("GET", f"/devices/{reporting}/rules")
    assert rule["ruleId"] == report["devices"][0]["ruleId"]
    assert outcomes(await ada.send_ok("POST", f"/groups/{group_id}/rules", RULE))[reporting] == "RULE_EXISTS"


async def test_a_group_is_bounded(ada: ApiCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("domain.groups.service.MAX_GROUP_DEVICES", 2)
    assert ports.MAX_GROUP_DEVICES >= 2
    first, second, third = await devices(ada, 3)
    group_id = await group(ada, [first, second])
    assert (await ada.send("PATCH", f"/groups/{group_id}/devices", {"add": [third]})).json()["error"] == "GROUP_FULL"
    changed = await ada.send_ok("PATCH", f"/groups/{group_id}/devices", {"add": [third], "remove": [first]})
    assert changed["deviceCount"] == 2


@pytest.mark.parametrize("role", [Role.MEMBER, Role.VIEWER])
async def test_a_member_sends_what_grants_on_the_group_allow(
    app: InProcessApp, ada: ApiCaller, account: CreatedAccountWithOwner, role: Role
) -> None:
    [device_id] = await devices(ada, 1)
    group_id = await group(ada, [device_id])
    membership_id = await app.create_member(account, "bob@example.com", role)
    bob = await app.sign_in("bob@example.com")
    sent = await bob.send_ok("POST", f"/groups/{group_id}/command", {"cmd": "ON"})
    assert outcomes(sent) == {device_id: "GRANT_MISSING" if role is Role.MEMBER else "ROLE_REQUIRED"}
    assert (await bob.send("PATCH", f"/groups/{group_id}/devices", {"remove": [device_id]})).status_code == 403
    await ada.send_ok("POST", f"/groups/{group_id}/grants", {"membershipId": membership_id, "commands": ["*"]})
    sent = await bob.send_ok("POST", f"/groups/{group_id}/command", {"cmd": "ON"})
    assert outcomes(sent) == {device_id: "QUEUED" if role is Role.MEMBER else "ROLE_REQUIRED"}
