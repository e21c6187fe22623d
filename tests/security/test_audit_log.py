"""Every act that changes who may do what, or what a device does, is on the record: what, by whom, from where; and no secret with
it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from domain.kernel.caller import Role
from support.http import PASSWORD
from support.pair import NEW
from support.whole import RECEIVER, whole

PLAIN = {"name": "FLUSH", "label": "Flush", "requiresApproval": True}


async def test_each_act_leaves_its_event_with_who_and_from_where(tmp_path: Path) -> None:
    async with whole(tmp_path) as program:
        account = await program.account("owner@example.com")
        owner = await program.sign_in("owner@example.com")
        secrets = await every_act(program, account, owner)
        records = (await owner.made("GET", "/events?limit=200"))["data"]
        present = {record["eventType"] for record in records}
        assert present >= ACTS, ACTS - present
        by_owner = f"user:{account.owner.user.user_id}"
        acts = [record for record in records if record["eventType"] in ACTS and record["source"] != "operator"]
        assert {record["source"] for record in acts if record["eventType"] != "approval_requested"} == {by_owner}
        assert all(record["address"] for record in acts)
        text = (await owner.send("GET", "/events?limit=200")).text
        assert not [secret for secret in secrets if secret in text]


ACTS = {
    *("project_created", "project_changed", "project_deleted", "member_changed", "key_created", "key_changed", "key_deleted"),
    *("device_type_created", "device_type_updated", "device_type_deleted", "device_registered", "device_updated"),
    *("command_defined", "command_updated", "command_removed", "grant_created", "grant_updated", "grant_revoked"),
    *("credentials_generated", "credentials_revealed", "credentials_revoked", "device_disabled", "device_enabled"),
    *(
        "schedule_created",
        "schedule_replaced",
        "schedule_updated",
        "schedule_cancelled",
        "rule_created",
        "rule_updated",
        "rule_deleted",
    ),
    *("approval_requested", "approval_decided", "webhook_created", "webhook_secret_rotated", "webhook_deleted", "device_deleted"),
}


async def every_act(program: Any, account: Any, owner: Any) -> list[str]:
    """The secrets that were shown meanwhile."""
    project = f"/projects/{(await owner.made('POST', '/projects', {'name': 'Barn'}))['projectId']}"
    await owner.made("PATCH", project, {"name": "Stable"})
    kind = f"/device-types/{(await owner.made('POST', '/device-types', {'name': 'Pump', 'commands': [PLAIN]}))['deviceTypeId']}"
    for method, path in (("DELETE", project), ("PATCH", kind), ("DELETE", kind)):
        await owner.made(method, path, {"name": "Pumps"} if method == "PATCH" else None)
    member = await program.member(account, "member@example.com", Role.MEMBER)
    await owner.made("PATCH", f"/members/{member}", {"role": "Viewer"})
    device = f"/devices/{(await owner.made('POST', '/devices/register', NEW))['deviceId']}"
    await owner.made("PUT", device, {"name": "Well"})
    await owner.made("POST", f"{device}/credentials", {})
    shown = await owner.made("POST", f"{device}/credentials/reveal", {"password": PASSWORD})
    command = await owner.made("POST", f"{device}/commands", PLAIN)
    await automate(program, owner, device)
    key = await owner.made("POST", "/keys", {"name": "Robot"})
    hook = await owner.made("POST", "/webhooks", {"keyId": key["keyId"], "url": RECEIVER})
    rotated = await owner.made("POST", f"/webhooks/{hook['webhookId']}/rotate-secret")
    grant = await owner.made("POST", f"{device}/grants", {"commands": ["*"], "apiKeyId": key["keyId"]})
    asked = await program.caller(X_Api_Key=key["key"]).made("POST", f"{device}/command", {"cmd": "FLUSH"})
    await owner.made("POST", f"{device}/approvals/{asked['approvalId']}/deny")
    await owner.made("PATCH", f"{device}/grants/{grant['grantId']}", {"commands": ["ON"]})
    await owner.made("DELETE", f"{device}/grants/{grant['grantId']}")
    await owner.made("PATCH", f"{device}/commands/{command['commandId']}", {"label": "Flush it"})
    await owner.made("DELETE", f"{device}/commands/{command['commandId']}")
    await owner.made("DELETE", f"/webhooks/{hook['webhookId']}")
    await owner.made("PATCH", f"/keys/{key['keyId']}", {"enabled": False})
    await owner.made("DELETE", f"/keys/{key['keyId']}")
    for _ in range(2):
        await owner.made("PATCH", f"{device}/toggle")
    await owner.made("POST", f"{device}/revoke")
    await owner.made("DELETE", device)
    return [shown["mqttPassword"], key["key"], hook["secret"], rotated["secret"], PASSWORD]


async def automate(program: Any, owner: Any, device: str) -> None:
    slot = {"slot": 0, "onTs": program.clock.now_ms() // 1000 + 3_600, "offTs": program.clock.now_ms() // 1000 + 7_200}
    for _ in range(2):
        await owner.made("POST", f"{device}/schedules", slot)
    await owner.made("PUT", f"{device}/schedules/0", {"label": "Night"})
    await owner.made("DELETE", f"{device}/schedules/0")
    conditions = [{"metric": "temperature", "comparator": ">", "value": 30}]
    await program.report(device.rpartition("/")[2], temperature=20)
    rule = await owner.made("POST", f"{device}/rules", {"name": "Hot", "conditions": conditions, "action": {"command": "ON"}})
    await owner.made("PATCH", f"{device}/rules/{rule['ruleId']}", {"name": "Too hot"})
    await owner.made("DELETE", f"{device}/rules/{rule['ruleId']}")


async def test_what_is_still_in_use_or_taken_is_refused_with_its_own_code(tmp_path: Path) -> None:
    async with whole(tmp_path) as program:
        await program.account("owner@example.com")
        owner = await program.sign_in("owner@example.com")
        project = (await owner.made("POST", "/projects", {"name": "Barn"}))["projectId"]
        kind = (await owner.made("POST", "/device-types", {"name": "Pump"}))["deviceTypeId"]
        await owner.made("POST", "/devices/register", NEW | {"projectId": project, "deviceTypeId": kind})
        for method, path, body, code in (
            ("DELETE", f"/projects/{project}", None, "PROJECT_NOT_EMPTY"),
            ("DELETE", f"/device-types/{kind}", None, "DEVICE_TYPE_IN_USE"),
            ("POST", "/device-types", {"name": "Pump"}, "DEVICE_TYPE_EXISTS"),
        ):
            answer = await owner.send(method, path, body)
            assert (answer.status_code, answer.json()["error"]) == (409, code)
