"""Groups of devices and permission: nothing of another project or account gets in, and no way around a lost role, key or grant."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from domain.kernel.caller import Role
from security.people import a_key
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

pytestmark = pytest.mark.asyncio(loop_scope="module")

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
GUARDED = {"name": "ON", "label": "On", "requiresApproval": True}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app() -> AsyncIterator[InProcessApp]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as program:
            program.account = await program.create_account("ada@example.com")  # type: ignore[attr-defined]
            await program.create_account("eve@example.com", "Other")
            yield program


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(app: InProcessApp) -> ApiCaller:
    return await app.sign_in("ada@example.com")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def eve(app: InProcessApp) -> ApiCaller:
    return await app.sign_in("eve@example.com")


async def device(owner: ApiCaller, **fields: Any) -> str:
    """With credentials, so that it takes commands."""
    device_id = str((await owner.send_ok("POST", "/devices/register", NEW | fields))["deviceId"])
    await owner.send_ok("POST", f"/devices/{device_id}/credentials", {})
    return device_id


async def group(owner: ApiCaller, name: str, members: list[str]) -> str:
    return f"/groups/{(await owner.send_ok('POST', '/groups', {'name': name, 'deviceIds': members}))['groupId']}"


async def colleague(app: InProcessApp, name: str, role: Role) -> tuple[ApiCaller, str]:
    membership_id = await app.create_member(app.account, f"{name}@example.com", role)  # type: ignore[attr-defined]
    return await app.sign_in(f"{name}@example.com"), membership_id


def outcomes(report: Any) -> dict[str, str]:
    return {each["deviceId"]: each["error"] or each["outcome"] for each in report["devices"]}


async def members(owner: ApiCaller, path: str) -> list[str]:
    return [each["deviceId"] for each in (await owner.send_ok("GET", path))["devices"]]


async def test_no_device_of_another_account_or_project_gets_into_a_group(ada: ApiCaller, eve: ApiCaller) -> None:
    ours, theirs = await device(ada), await device(eve)
    project = (await ada.send_ok("POST", "/projects", {"name": "Greenhouse"}))["projectId"]
    elsewhere = await device(ada, projectId=project)
    path = await group(ada, "Foreign", [ours])
    for stranger, status in ((theirs, 404), (elsewhere, 400), ("dev_00000000000000000000", 404)):
        changed = await ada.send("PATCH", f"{path}/devices", {"add": [stranger], "remove": [ours]})
        made = await ada.send("POST", "/groups", {"name": f"With {stranger}", "deviceIds": [ours, stranger]})
        assert (changed.status_code, made.status_code) == (status, status), (changed.text, made.text)
    assert await members(ada, path) == [ours], "a refused change changes nothing"
    assert not [each for each in await ada.send_ok("GET", "/groups") if each["name"].startswith("With ")]
    taken = await ada.send("PATCH", f"{path}/devices", {"remove": [theirs]})
    assert taken.json() == {"added": 0, "removed": 0, "deviceCount": 1}


async def test_another_account_can_do_nothing_with_a_group(ada: ApiCaller, eve: ApiCaller) -> None:
    theirs = await device(eve)
    path = await group(ada, "Ours", [await device(ada)])
    for method, below, body in (
        ("GET", "", None),
        ("PATCH", "", {"name": "Mine"}),
        ("PATCH", "/devices", {"add": [theirs]}),
        ("POST", "/command", {"cmd": "ON"}),
        ("POST", "/command/preview", {"cmd": "ON"}),
        ("POST", "/grants", {"commands": ["*"], "apiKeyId": (await a_key(eve))[1]}),
        ("DELETE", "/schedules/1", None),
        ("DELETE", "", None),
    ):
        answer = await eve.send(method, path + below, body)
        assert answer.status_code == 404, f"{method} {below}: {answer.text}"
    foreign = await ada.send("POST", f"{path}/grants", {"commands": ["*"], "apiKeyId": (await a_key(eve))[1]})
    assert foreign.status_code in (400, 404), foreign.text


async def test_a_device_that_changes_its_project_takes_no_grant_of_the_group_with_it(ada: ApiCaller) -> None:
    moving, staying = await device(ada), await device(ada)
    path = await group(ada, "Moving", [moving, staying])
    robot, key_id = await a_key(ada)
    await ada.send_ok("POST", f"{path}/grants", {"commands": ["ON"], "apiKeyId": key_id})
    project = (await ada.send_ok("POST", "/projects", {"name": "Barn"}))["projectId"]
    await ada.send_ok("PUT", f"/devices/{moving}", {"projectId": project})
    assert outcomes(await robot.send_ok("POST", f"{path}/command", {"cmd": "ON"})) == {staying: "QUEUED"}
    assert (await robot.send("POST", f"/devices/{moving}/command", {"cmd": "ON"})).json()["error"] == "GRANT_MISSING"


@pytest.mark.parametrize("lost", ["demoted", "removed"])
async def test_what_a_lost_member_left_waiting_is_not_approved(app: InProcessApp, ada: ApiCaller, lost: str) -> None:
    """What waits for its device ends with the permission; what waits for approval is decided with that of the moment."""
    free, guarded = await device(ada), await device(ada)
    await ada.send_ok("POST", f"/devices/{guarded}/commands", GUARDED)
    path = await group(ada, f"Of the {lost}", [free, guarded])
    bob, membership_id = await colleague(app, lost, Role.MEMBER)
    await ada.send_ok("POST", f"{path}/grants", {"commands": ["ON"], "membershipId": membership_id})
    report = await bob.send_ok("POST", f"{path}/command", {"cmd": "ON"})
    assert outcomes(report) == {free: "QUEUED", guarded: "PENDING"}
    if lost == "demoted":
        await ada.send_ok("PATCH", f"/members/{membership_id}", {"role": "Viewer"})
    else:
        await ada.send_ok("DELETE", f"/members/{membership_id}")

    approval_id = report["devices"][1]["approvalId"]
    refused = await ada.send("POST", f"/devices/{guarded}/approvals/{approval_id}/approve", {})
    assert not refused.is_success, refused.text
    assert (await ada.send_ok("GET", f"/devices/{guarded}/executions"))["data"] == []
    [accepted] = (await ada.send_ok("GET", f"/devices/{free}/executions"))["data"]
    assert (accepted["status"], accepted["executionId"]) == ("CANCELLED", report["devices"][0]["executionId"])
    again = await bob.send("POST", f"{path}/command", {"cmd": "ON"})
    assert again.status_code == 401 if lost == "removed" else outcomes(again.json())[free] == "ROLE_REQUIRED"


async def test_what_waits_for_a_device_that_left_the_group_is_not_approved(ada: ApiCaller) -> None:
    free, guarded = await device(ada), await device(ada)
    await ada.send_ok("POST", f"/devices/{guarded}/commands", GUARDED)
    path = await group(ada, "Leaving", [free, guarded])
    robot, key_id = await a_key(ada)
    await ada.send_ok("POST", f"{path}/grants", {"commands": ["ON"], "apiKeyId": key_id})
    report = await robot.send_ok("POST", f"{path}/command", {"cmd": "ON"})
    await ada.send_ok("PATCH", f"{path}/devices", {"remove": [free, guarded]})

    approval_id = report["devices"][1]["approvalId"]
    refused = await ada.send("POST", f"/devices/{guarded}/approvals/{approval_id}/approve", {})
    assert refused.json()["error"] == "GRANT_MISSING", refused.text
    [accepted] = (await ada.send_ok("GET", f"/devices/{free}/executions"))["data"]
    assert accepted["status"] == "CANCELLED", "the group was all that permitted it"


async def test_a_deleted_device_leaves_its_groups_and_the_report(ada: ApiCaller) -> None:
    gone, stays = await device(ada), await device(ada)
    path = await group(ada, "Deleted", [gone, stays])
    await ada.send_ok("POST", f"{path}/command", {"cmd": "ON"})
    await ada.send_ok("DELETE", f"/devices/{gone}")
    assert await members(ada, path) == [stays]
    assert outcomes(await ada.send_ok("POST", f"{path}/command", {"cmd": "OFF"})) == {stays: "QUEUED"}
