"""Calls each operation of the document so that only missing permission can refuse it: with new objects for its path, and a body.

A row is `METHOD /path`, as in the document without `/api/v1`; ` #word` behind it is another way to call the same operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from adapters.randomness import RandomIdAndSecretGenerator
from domain.kernel.caller import Role
from domain.kernel.ids import IdPrefix
from support.http import PASSWORD
from support.in_process_app import RECEIVER_URL, ApiCaller, InProcessApp

Ids = dict[str, str]
Body = Callable[[Ids], Any]
SOON_S = 1_800_003_600
NUMBERS = count()
"""For names that only one may have."""


@dataclass
class Targets:
    """Creates the objects that a path names in one account: each one new, with its parents."""

    app: InProcessApp
    owner: ApiCaller
    requester: ApiCaller
    """A key that may send everything; it requests the approvals."""
    account_id: str
    secrets: set[str] = field(default_factory=set)
    """What only the response that creates it may contain."""
    count: int = 0

    async def create(self, row: str) -> Ids:
        """Ids by the name of the path parameter, plus `keyId` and `membershipId` where a body needs them."""
        ids: Ids = {}
        for name, maker in MAKERS.items():
            if f"{{{name}}}" in row:
                ids |= await maker(self, ids)
        for name in NEEDED.get(row, ()):
            ids |= await MAKERS[name](self, ids)
        if "#owner" in row:
            ids |= await _member(self, ids, Role.OWNER)
        if row == "POST /auth/refresh":
            answer = await self.app.caller().send_ok("POST", "/auth/login", _login(ids))
            ids["token"] = answer["refreshToken"]
        return ids

    def number(self) -> int:
        self.count += 1
        return self.count


async def _device(at: Targets, ids: Ids) -> Ids:
    new = {"name": f"Pump {at.number()}", "boardType": "ESP32", "appType": "PUMP"}
    device_id = (await at.owner.send_ok("POST", "/devices/register", new))["deviceId"]
    made = await at.owner.send_ok("POST", f"/devices/{device_id}/credentials", {})
    at.secrets.add(made["mqttPassword"])
    return {"deviceId": device_id}


async def _key(at: Targets, ids: Ids) -> Ids:
    made = await at.owner.send_ok("POST", "/keys", {"name": f"Key {at.number()}"})
    at.secrets.add(made["key"])
    return {"keyId": made["keyId"]}


async def _member(at: Targets, ids: Ids, role: Role = Role.VIEWER) -> Ids:
    account = await at.app.services.operator.add_user(
        at.account_id, email=f"{at.number()}@{at.account_id}.example", password=PASSWORD, role=role
    )
    return {"membershipId": account.membership.membership_id}


async def _invitation(at: Targets, ids: Ids) -> Ids:
    new = {"email": f"invited{at.number()}@{at.account_id}.example", "name": "Grace", "role": "Member"}
    made = await at.owner.send_ok("POST", "/invitations", new)
    at.secrets.add(made["link"].rpartition("/")[2])
    return {"invitationId": made["invitationId"]}


async def _project(at: Targets, ids: Ids) -> Ids:
    return {"projectId": (await at.owner.send_ok("POST", "/projects", {"name": f"Project {at.number()}"}))["projectId"]}


async def _device_type(at: Targets, ids: Ids) -> Ids:
    made = await at.owner.send_ok("POST", "/device-types", {"name": f"Type {at.number()}", "commands": []})
    return {"deviceTypeId": made["deviceTypeId"]}


async def _command(at: Targets, ids: Ids) -> Ids:
    new = {"name": f"GUARDED_{at.number()}", "label": "Guarded", "requiresApproval": True}
    made = await at.owner.send_ok("POST", f"/devices/{ids['deviceId']}/commands", new)
    return {"commandId": made["commandId"], "cmd": str(new["name"])}


async def _grant(at: Targets, ids: Ids) -> Ids:
    key = await _key(at, ids)
    body = {"commands": ["ON"], "apiKeyId": key["keyId"]}
    place = f"/devices/{ids['deviceId']}" if "deviceId" in ids else f"/groups/{ids['groupId']}"
    return {"grantId": (await at.owner.send_ok("POST", f"{place}/grants", body))["grantId"]}


async def _group(at: Targets, ids: Ids) -> Ids:
    """In the default project, which every caller's grant is on, with a device that a rule can be made for."""
    device_id = (await _device(at, {}))["deviceId"]
    await at.app.report(device_id, temperature=21)
    body = {"name": f"Group {at.number()}", "deviceIds": [device_id]}
    return {"groupId": (await at.owner.send_ok("POST", "/groups", body))["groupId"]}


async def _execution(at: Targets, ids: Ids) -> Ids:
    sent = await at.owner.send_ok("POST", f"/devices/{ids['deviceId']}/command", {"cmd": "STATUS"})
    return {"executionId": sent["executionId"]}


async def _approval(at: Targets, ids: Ids) -> Ids:
    guarded = await _command(at, ids)
    sent = await at.requester.send_ok("POST", f"/devices/{ids['deviceId']}/command", {"cmd": guarded["cmd"]})
    return {"approvalId": sent["approvalId"]}


async def _rule(at: Targets, ids: Ids) -> Ids:
    await at.app.report(ids["deviceId"], temperature=21)
    return {"ruleId": (await at.owner.send_ok("POST", f"/devices/{ids['deviceId']}/rules", rule_body(ids)))["ruleId"]}


async def _metric(at: Targets, ids: Ids) -> Ids:
    await at.app.report(ids["deviceId"], temperature=21)
    return {}


async def _slot(at: Targets, ids: Ids) -> Ids:
    place = f"/devices/{ids['deviceId']}" if "deviceId" in ids else f"/groups/{ids['groupId']}"
    await at.owner.send_ok("POST", f"{place}/schedules", slot_body(ids))
    return {"slot": "2"}


async def _webhook(at: Targets, ids: Ids) -> Ids:
    key = await _key(at, ids)
    made = await at.owner.send_ok("POST", "/webhooks", {"keyId": key["keyId"], "url": RECEIVER_URL})
    at.secrets.add(made["secret"])
    return {"webhookId": made["webhookId"]}


async def _delivery(at: Targets, ids: Ids) -> Ids:
    return {"deliveryId": (await at.owner.send_ok("POST", f"/webhooks/{ids['webhookId']}/ping"))["deliveryId"]}


async def _event(at: Targets, ids: Ids) -> Ids:
    return {"eventId": (await at.owner.send_ok("GET", "/events?limit=1"))["data"][0]["id"]}


async def _code(at: Targets, ids: Ids) -> Ids:
    made = await at.owner.send_ok("POST", "/provisioning-codes", code_body(ids))
    at.secrets.add(made["code"])
    return {"codeId": made["codeId"], "code": made["code"], "hardwareId": f"HW-{at.number():06d}"}


async def _claim(at: Targets, ids: Ids) -> Ids:
    code = await _code(at, ids)
    claim = {"code": code["code"], "hardwareId": code["hardwareId"]}
    await at.app.caller().send_ok("POST", "/provisioning/claim", claim)
    return {"claimId": (await at.owner.send_ok("GET", "/provisioning-claims?limit=1"))[0]["claimId"]}


async def _session(at: Targets, ids: Ids) -> Ids:
    """Of a person that no caller is."""
    door = at.app.caller()
    tokens = await door.send_ok("POST", "/auth/login", _login(ids))
    door.headers["Authorization"] = f"Bearer {tokens['accessToken']}"
    return {"sessionId": (await door.send_ok("GET", "/auth/sessions"))[0]["sessionId"]}


async def _channel(at: Targets, ids: Ids) -> Ids:
    """Of nobody: a member sees and tests only channels of their own."""
    return {"channelId": RandomIdAndSecretGenerator().new_id(IdPrefix.CHANNEL)}


async def _passkey(at: Targets, ids: Ids) -> Ids:
    """Of nobody: only its own user may remove one, after a step-up."""
    return {"passkeyId": RandomIdAndSecretGenerator().new_id(IdPrefix.PASSKEY)}


MAKERS: dict[str, Callable[[Targets, Ids], Any]] = {
    "deviceId": _device,
    "keyId": _key,
    "membershipId": _member,
    "invitationId": _invitation,
    "projectId": _project,
    "deviceTypeId": _device_type,
    "commandId": _command,
    "groupId": _group,
    "grantId": _grant,
    "executionId": _execution,
    "approvalId": _approval,
    "ruleId": _rule,
    "slot": _slot,
    "webhookId": _webhook,
    "deliveryId": _delivery,
    "eventId": _event,
    "sessionId": _session,
    "codeId": _code,
    "claimId": _claim,
    "channelId": _channel,
    "passkeyId": _passkey,
    "metric": _metric,
    "cmd": _command,
}
NEEDED = {
    "POST /webhooks": ("keyId",),
    "POST /groups/{groupId}/grants": ("keyId",),
    "POST /provisioning/claim": ("codeId",),
    "POST /devices/{deviceId}/grants": ("keyId",),
    "POST /devices/{deviceId}/rules": ("metric",),
    "POST /devices/{deviceId}/rules/test": ("metric",),
    "POST /devices/{deviceId}/command #approval": ("cmd",),
}
PREFIXES = {
    "deviceId": IdPrefix.DEVICE,
    "keyId": IdPrefix.KEY,
    "membershipId": IdPrefix.MEMBERSHIP,
    "invitationId": IdPrefix.INVITATION,
    "projectId": IdPrefix.PROJECT,
    "deviceTypeId": IdPrefix.DEVICE_TYPE,
    "commandId": IdPrefix.COMMAND,
    "grantId": IdPrefix.GRANT,
    "groupId": IdPrefix.GROUP,
    "executionId": IdPrefix.EXECUTION,
    "approvalId": IdPrefix.APPROVAL,
    "ruleId": IdPrefix.RULE,
    "webhookId": IdPrefix.WEBHOOK,
    "deliveryId": IdPrefix.DELIVERY,
    "eventId": IdPrefix.EVENT,
    "sessionId": IdPrefix.SESSION,
    "codeId": IdPrefix.PROVISIONING_CODE,
    "claimId": IdPrefix.CLAIM,
    "passkeyId": IdPrefix.PASSKEY,
    "channelId": IdPrefix.CHANNEL,
}


_fleet_numbers = count(1)


def _fleet() -> Any:
    device = {"externalId": f"pump-{next(_fleet_numbers)}", "name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
    return {"document": {"version": 1, "devices": [device]}, "credentials": "NEW"}


def rule_body(_: Ids) -> Any:
    condition = {"metric": "temperature", "comparator": ">", "value": 30}
    return {"name": "Too hot", "conditions": [condition], "action": {"command": "OFF"}}


def code_body(_: Ids) -> Any:
    return {"name": "Hall", "boardType": "ESP32", "appType": "PUMP", "maxDevices": 9, "expiresAt": "2027-02-01T00:00:00Z"}


def slot_body(_: Ids) -> Any:
    return {"slot": 2, "onTs": SOON_S, "offTs": SOON_S + 3600}


def _login(_: Ids) -> Any:
    return {"email": "door@example.com", "password": PASSWORD}


def _new_member(role: str) -> Body:
    count = iter(range(1_000_000))
    return lambda _: {"email": f"new{next(count)}@{role}.example", "name": "New", "role": role, "password": PASSWORD}


def _new_invitation(role: str) -> Body:
    count = iter(range(1_000_000))
    return lambda _: {"email": f"guest{next(count)}@{role}.example", "name": "Guest", "role": role}


def _new_type() -> Body:
    count = iter(range(1_000_000))
    return lambda _: {"name": f"Fresh type {next(count)}", "commands": []}


def _new_group() -> Body:
    count = iter(range(1_000_000))
    return lambda _: {"name": f"Fresh group {next(count)}"}


BODIES: dict[str, Body] = {
    "POST /auth/login": _login,
    "POST /auth/refresh": lambda ids: {"refreshToken": ids["token"]},
    "POST /auth/login/second-factor": lambda ids: {"challengeToken": "unknown", "totp": "000000"},
    "POST /auth/login/passkey/options": lambda ids: {},
    "POST /auth/login/passkey": lambda ids: {"passkey": {}},
    "POST /auth/passkeys": lambda ids: {"name": "Phone", "passkey": {}},
    "POST /auth/step-up": lambda ids: {"password": "not the current one"},
    "POST /auth/second-factor/totp/confirm": lambda ids: {"code": "000000"},
    "POST /auth/unlock/request": lambda ids: {"email": "nobody@example.com"},
    "POST /auth/unlock": lambda ids: {"token": "unknown"},
    "POST /auth/logout": lambda ids: {"refreshToken": "unknown"},
    "POST /auth/password/change": lambda ids: {"currentPassword": "not the current one", "newPassword": PASSWORD},
    "POST /auth/change-password": lambda ids: {"otp": "no code", "newPassword": PASSWORD},
    "POST /service-sessions": lambda ids: {
        "name": "ci",
        "role": "Member",
        "operations": ["devices:read"],
        "expiresAt": "2027-02-01T00:00:00Z",
    },
    "POST /members": _new_member("Member"),
    "POST /members #owner": _new_member("Owner"),
    "POST /invitations": _new_invitation("Member"),
    "POST /invitations #owner": _new_invitation("Owner"),
    "POST /invitations/preview": lambda ids: {"token": "unknown"},
    "POST /invitations/accept": lambda ids: {"token": "unknown", "password": PASSWORD},
    "PATCH /members/{membershipId}": lambda ids: {"role": "Member"},
    "PATCH /members/{membershipId} #owner": lambda ids: {"role": "Viewer"},
    "PATCH /members/{membershipId} #promote": lambda ids: {"role": "Owner"},
    "POST /projects": lambda ids: {"name": f"Greenhouse {next(NUMBERS)}"},
    "PATCH /projects/{projectId}": lambda ids: {"name": f"Greenhouse {next(NUMBERS)}"},
    "POST /keys": lambda ids: {"name": "Robot"},
    "PATCH /keys/{keyId}": lambda ids: {"enabled": False},
    "POST /keys/{keyId}/rotate": lambda ids: {"overlapSeconds": 0},
    "POST /devices/register": lambda ids: {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"},
    "POST /fleet/plan": lambda ids: _fleet(),
    "POST /fleet/apply": lambda ids: _fleet(),
    "POST /devices/register/bulk": lambda ids: {
        "devices": [{"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}],
        "credentials": "NEW",
    },
    "POST /provisioning-codes": code_body,
    "POST /provisioning/claim": lambda ids: {"code": ids["code"], "hardwareId": ids["hardwareId"]},
    "PUT /devices/{deviceId}": lambda ids: {"name": "Fan"},
    "POST /devices/{deviceId}/credentials": lambda ids: {"rotate": True},
    "POST /devices/{deviceId}/credentials/reveal": lambda ids: {"password": PASSWORD},
    "POST /device-types": _new_type(),
    "PATCH /device-types/{deviceTypeId}": lambda ids: {"commands": []},
    "POST /devices/{deviceId}/commands": lambda ids: {"name": "BLINK", "label": "Blink"},
    "PATCH /devices/{deviceId}/commands/{commandId}": lambda ids: {"label": "Blink", "requiresApproval": False},
    "POST /devices/{deviceId}/command": lambda ids: {"cmd": "ON"},
    "POST /devices/{deviceId}/command #query": lambda ids: {"cmd": "STATUS"},
    "POST /devices/{deviceId}/command #approval": lambda ids: {"cmd": ids["cmd"]},
    "POST /devices/{deviceId}/schedules": slot_body,
    "PUT /devices/{deviceId}/schedules": slot_body,
    "PUT /devices/{deviceId}/schedules/{slot}": lambda ids: {"enabled": False},
    "POST /devices/{deviceId}/metrics": lambda ids: {"metrics": ["moisture"]},
    "POST /devices/{deviceId}/rules": rule_body,
    "PATCH /devices/{deviceId}/rules/{ruleId}": lambda ids: {"enabled": False},
    "PUT /auth/notifications": lambda ids: {"topics": ["APPROVALS"]},
    "POST /auth/notifications/channels": lambda ids: {"name": "Phone", "telegram": {"botToken": "1:secret", "chatId": "2"}},
    "POST /approval-links/preview": lambda ids: {"token": "unknown"},
    "POST /approval-links/passkey-options": lambda ids: {"token": "unknown"},
    "POST /approval-links/approve": lambda ids: {"token": "unknown"},
    "POST /approval-links/deny": lambda ids: {"token": "unknown"},
    "POST /devices/{deviceId}/rules/test": lambda ids: {
        "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}],
        "from": 0,
        "to": 1_000,
    },
    "POST /devices/{deviceId}/rules/{ruleId}/test": lambda ids: {"readings": {"temperature": 31}},
    "POST /devices/{deviceId}/grants": lambda ids: {"commands": ["ON"], "apiKeyId": ids["keyId"]},
    "PATCH /devices/{deviceId}/grants/{grantId}": lambda ids: {"commands": ["ON", "OFF"]},
    "POST /groups": _new_group(),
    "PATCH /groups/{groupId}": lambda ids: {"description": "Outside"},
    "PATCH /groups/{groupId}/devices": lambda ids: {"add": [], "remove": []},
    "POST /groups/{groupId}/command": lambda ids: {"cmd": "ON"},
    "POST /groups/{groupId}/command/preview": lambda ids: {"cmd": "ON"},
    "POST /groups/{groupId}/schedules": slot_body,
    "POST /groups/{groupId}/rules": rule_body,
    "POST /groups/{groupId}/grants": lambda ids: {"commands": ["ON"], "apiKeyId": ids["keyId"]},
    "PATCH /groups/{groupId}/grants/{grantId}": lambda ids: {"commands": ["ON", "OFF"]},
    "POST /webhooks": lambda ids: {"keyId": ids["keyId"], "url": RECEIVER_URL},
    "POST /webhooks/{webhookId}/recover": lambda ids: {"since": 0},
    "PATCH /webhooks/{webhookId}": lambda ids: {"enabled": False},
}
