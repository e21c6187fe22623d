"""Each action that changes permissions or devices is logged with its caller and address, and without any secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from domain.kernel.caller import Role
from support.http import PASSWORD
from support.in_process_app import RECEIVER_URL, in_process_app
from support.two_instances import NEW_DEVICE

PLAIN = {"name": "FLUSH", "label": "Flush", "requiresApproval": True}


async def test_each_action_logs_its_caller_and_address(tmp_path: Path) -> None:
    async with in_process_app(tmp_path) as program:
        account = await program.create_account("owner@example.com")
        owner = await program.sign_in("owner@example.com")
        secrets = await every_act(program, account, owner)
        records = (await owner.send_ok("GET", "/events?limit=200"))["data"]
        present = {record["eventType"] for record in records}
        assert present >= ACTS, ACTS - present
        by_owner = f"user:{account.owner.user.user_id}"
        acts = [record for record in records if record["eventType"] in ACTS and record["source"] != "operator"]
        assert {record["source"] for record in acts if record["eventType"] != "approval_requested"} == {by_owner}
        assert all(record["address"] for record in acts)
        text = (await owner.send("GET", "/events?limit=200")).text
        assert not [secret for secret in secrets if secret in text]


ACTS = {
    *("project_created", "project_changed", "project_deleted", "key_created", "key_changed", "key_rotated", "key_deleted"),
    *("member_changed", "member_invited", "member_invitation_revoked"),
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
    """Perform every action; returns the secrets that were shown."""
    project = f"/projects/{(await owner.send_ok('POST', '/projects', {'name': 'Barn'}))['projectId']}"
    await owner.send_ok("PATCH", project, {"name": "Stable"})
    kind = (
        f"/device-types/{(await owner.send_ok('POST', '/device-types', {'name': 'Pump', 'commands': [PLAIN]}))['deviceTypeId']}"
    )
    for method, path in (("DELETE", project), ("PATCH", kind), ("DELETE", kind)):
        await owner.send_ok(method, path, {"name": "Pumps"} if method == "PATCH" else None)
    member = await program.create_member(account, "member@example.com", Role.MEMBER)
    await owner.send_ok("PATCH", f"/members/{member}", {"role": "Viewer"})
    invited = await owner.send_ok("POST", "/invitations", {"email": "guest@example.com", "name": "Guest", "role": "Viewer"})
    await owner.send_ok("DELETE", f"/invitations/{invited['invitationId']}")
    device = f"/devices/{(await owner.send_ok('POST', '/devices/register', NEW_DEVICE))['deviceId']}"
    await owner.send_ok("PUT", device, {"name": "Well"})
    await owner.send_ok("POST", f"{device}/credentials", {})
    shown = await owner.send_ok("POST", f"{device}/credentials/reveal", {"password": PASSWORD})
    command = await owner.send_ok("POST", f"{device}/commands", PLAIN)
    await automate(program, owner, device)
    key = await owner.send_ok("POST", "/keys", {"name": "Robot"})
    webhook = await owner.send_ok("POST", "/webhooks", {"keyId": key["keyId"], "url": RECEIVER_URL})
    rotated = await owner.send_ok("POST", f"/webhooks/{webhook['webhookId']}/rotate-secret")
    grant = await owner.send_ok("POST", f"{device}/grants", {"commands": ["*"], "apiKeyId": key["keyId"]})
    requested = await program.caller(X_Api_Key=key["key"]).send_ok("POST", f"{device}/command", {"cmd": "FLUSH"})
    await owner.send_ok("POST", f"{device}/approvals/{requested['approvalId']}/deny")
    await owner.send_ok("PATCH", f"{device}/grants/{grant['grantId']}", {"commands": ["ON"]})
    await owner.send_ok("DELETE", f"{device}/grants/{grant['grantId']}")
    await owner.send_ok("PATCH", f"{device}/commands/{command['commandId']}", {"label": "Flush it"})
    await owner.send_ok("DELETE", f"{device}/commands/{command['commandId']}")
    await owner.send_ok("DELETE", f"/webhooks/{webhook['webhookId']}")
    await owner.send_ok("PATCH", f"/keys/{key['keyId']}", {"enabled": False})
    new = await owner.send_ok("POST", f"/keys/{key['keyId']}/rotate", {})
    await owner.send_ok("DELETE", f"/keys/{key['keyId']}")
    for _ in range(2):
        await owner.send_ok("PATCH", f"{device}/toggle")
    await owner.send_ok("POST", f"{device}/revoke")
    await owner.send_ok("DELETE", device)
    link = invited["link"].rpartition("/")[2]
    return [link, shown["mqttPassword"], key["key"], new["key"], webhook["secret"], rotated["secret"], PASSWORD]


async def automate(program: Any, owner: Any, device: str) -> None:
    slot = {"slot": 0, "onTs": program.clock.now_ms() // 1000 + 3_600, "offTs": program.clock.now_ms() // 1000 + 7_200}
    for _ in range(2):
        await owner.send_ok("POST", f"{device}/schedules", slot)
    await owner.send_ok("PUT", f"{device}/schedules/0", {"label": "Night"})
    await owner.send_ok("DELETE", f"{device}/schedules/0")
    conditions = [{"metric": "temperature", "comparator": ">", "value": 30}]
    await program.report(device.rpartition("/")[2], temperature=20)
    rule = await owner.send_ok("POST", f"{device}/rules", {"name": "Hot", "conditions": conditions, "action": {"command": "ON"}})
    await owner.send_ok("PATCH", f"{device}/rules/{rule['ruleId']}", {"name": "Too hot"})
    await owner.send_ok("DELETE", f"{device}/rules/{rule['ruleId']}")


async def test_conflicts_have_their_own_error_codes(tmp_path: Path) -> None:
    async with in_process_app(tmp_path) as program:
        await program.create_account("owner@example.com")
        owner = await program.sign_in("owner@example.com")
        project = (await owner.send_ok("POST", "/projects", {"name": "Barn"}))["projectId"]
        kind = (await owner.send_ok("POST", "/device-types", {"name": "Pump"}))["deviceTypeId"]
        await owner.send_ok("POST", "/devices/register", NEW_DEVICE | {"projectId": project, "deviceTypeId": kind})
        for method, path, body, code in (
            ("DELETE", f"/projects/{project}", None, "PROJECT_NOT_EMPTY"),
            ("DELETE", f"/device-types/{kind}", None, "DEVICE_TYPE_IN_USE"),
            ("POST", "/device-types", {"name": "Pump"}, "DEVICE_TYPE_EXISTS"),
        ):
            answer = await owner.send(method, path, body)
            assert (answer.status_code, answer.json()["error"]) == (409, code)
