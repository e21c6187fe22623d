"""An example of every body and every answer of the document, built out of the same schemas.

What a field of a name looks like is said once, and holds wherever the name stands; `Model.field` says it for one place. A request
shows what one sends, not all that one could, so those are said whole. A test holds each example to its schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

DEVICE = "dev_4k2m8q0v6x1z3b5n7p9r"
PROJECT = "prj_7c1d9f3h5j2k4m6n8p0q"
TYPE = "dty_2b4d6f8h0j1k3m5n7p9r"
KEY = "key_9r7p5n3m1k0j8h6f4d2b"
MEMBER = "mbr_3n5p7r9t1v2x4z6b8d0f"
USER = "usr_8d6b4z2x1v9t7r5p3n0m"
ACCOUNT = "acc_0m2n4p6q8r1s3t5u7v9w"
GRANT = "grt_5h3f1d9b7z6x4v2t0r8p"
EXECUTION = "exe_1a3c5e7g9i2k4m6o8q0s"
APPROVAL = "apv_6s4q2o0m8k7i5g3e1c9a"
COMMAND = "cmd_2t4v6x8z0b1d3f5h7j9l"
EVENT = "evt_7l5j3h1f9d8b6z4x2v0t"
RULE = "rul_4w6y8a0c2e1g3i5k7m9o"
SCHEDULE = "sched_9o7m5k3i1g0e8c6a4y2w"
WEBHOOK = "whk_3p5r7t9v1x2z4b6d8f0h"
DELIVERY = "whd_8h6f4d2b0z9x7v5t3r1p"
THEN, LATER, NOW_S = "2026-11-21T04:00:00.000Z", "2026-11-21T04:00:02.120Z", 1_795_233_600
OVERHEAT: Mapping[str, Any] = {
    "name": "Overheat",
    "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}],
    "action": {"command": "OFF"},
}

BODIES: dict[str, Any] = {
    "Login": {"email": "ada@example.com", "password": "four words only you know"},
    "RefreshTokenBody": {"refreshToken": "Zk3vXq81mPbT0wYd5nRc7uHs2LgJ9aEo4iKfNx6QyBtVrCzM"},
    "ChangePassword": {"otp": "402913", "newPassword": "a new and longer passphrase"},
    "NewMember": {"email": "grace@example.com", "name": "Grace", "role": "Member", "password": "four words only you know"},
    "MemberChange": {"role": "Admin"},
    "ProjectBody": {"name": "Greenhouse"},
    "NewKey": {"name": "Irrigation robot"},
    "KeyChange": {"enabled": False},
    "NewDevice": {"name": "Pump 1", "boardType": "ESP32", "appType": "PUMP", "projectId": PROJECT, "tags": ["north"]},
    "DeviceChanges": {"name": "Pump 1, left", "location": "Hall 2"},
    "NewCredentials": {"rotate": True},
    "Reveal": {"password": "four words only you know"},
    "NewDeviceType": {"name": "Dimmer", "commands": [{"name": "LEVEL", "label": "Level", "paramsSchema": {"type": "integer"}}]},
    "DeviceTypeChanges": {"name": "Dimmer, 2 channels"},
    "Command": {"cmd": "ON", "ttlSeconds": 60, "waitSeconds": 5},
    "NewDefinition": {"name": "FLUSH", "label": "Flush the pipe", "kind": "ACTION", "requiresApproval": True},
    "DefinitionChanges": {"label": "Flush", "requiresApproval": False},
    "NewSlot": {"slot": 0, "onTs": NOW_S, "offTs": NOW_S + 3_600, "rrule": "FREQ=DAILY", "timezone": "Europe/Berlin"},
    "SlotChanges": {"slot": 0, "offTs": NOW_S + 7_200},
    "NewRule": {**OVERHEAT, "forSeconds": 60},
    "RuleChanges": {"enabled": False},
    "TestRule": {"readings": {"temperature": 31}},
    "NewGrant": {
        "apiKeyId": KEY,
        "commands": ["ON", "OFF"],
        "scope": "WRITE",
        "activeDays": [1, 2, 3, 4, 5],
        "activeFromMinute": 480,
        "activeToMinute": 1_080,
        "timezone": "Europe/Berlin",
        "rateLimitPerMinute": 10,
    },
    "GrantChanges": {"expiresAt": "2027-01-01T00:00:00.000Z"},
    "NewWebhook": {"keyId": KEY, "url": "https://example.com/hooks/latchboard"},
    "WebhookChanges": {"enabled": True},
}

VALUES: dict[str, Any] = {
    "accountId": ACCOUNT, "userId": USER, "membershipId": MEMBER, "projectId": PROJECT, "deviceId": DEVICE, "deviceTypeId": TYPE,
    "keyId": KEY, "apiKeyId": KEY, "grantId": GRANT, "executionId": EXECUTION, "approvalId": APPROVAL, "commandId": COMMAND,
    "eventId": EVENT, "ruleId": RULE, "scheduleId": SCHEDULE, "webhookId": WEBHOOK, "deliveryId": DELIVERY,
    "webhookEventId": EVENT,
    "accessToken": "eyJhbGciOiJIUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJ1c3JfOGQ2YjR6Mngxdjl0N3I1cDNuMG0ifQ.c2lnbmF0dXJl",
    "refreshToken": BODIES["RefreshTokenBody"]["refreshToken"], "accountName": "Analytical Engines", "email": "ada@example.com",
    "name": "Ada", "plan": "self-hosted", "role": "Owner", "deviceCount": 12, "address": "203.0.113.7",
    "key": "sk_live_EXAMPLEexampleEXAMPLEexampleEXAMPLEexamp000000", "prefix": "sk_live_EXAM", "secretPrefix": "whsec_Zk3v",
    "secret": "whsec_Zk3vXq81mPbT0wYd5nRc7uHs2LgJ9aEo4iKfNx6QyBs=", "deviceName": "Pump 1", "boardType": "ESP32",
    "appType": "PUMP",
    "appTypeOther": None, "description": None, "location": "Hall 2", "manufacturer": None, "model": None, "industry": None,
    "tags": ["north"], "configFormat": "arduino", "configBlock": "// Pump 1\n#define DEVICE_ID \"dev_4k2m8q0v6x1z3b5n7p9r\"\n",
    "note": "Without the password; reveal the credentials to get it.", "mqttUsername": DEVICE,
    "mqttHost": "latchboard.example.com",
    "mqttPassword": "q8Zr2Lk5Tn9Wc3Vb7Xm1Hd6Jf4Gs0PyA", "mqttPort": 1_883, "wsPort": 8_083, "relayState": True, "state": "ON",
    "lastSeen": LATER, "createdAt": THEN, "updatedAt": LATER, "recordedAt": LATER, "expiresAt": "2026-11-21T04:01:00.000Z",
    "finishedAt": LATER, "decidedAt": LATER, "decidedBy": f"user:{USER}", "lastUsedAt": LATER, "lastFiredAt": None,
    "nextFireAt": "2026-11-22T04:00:00.000Z", "nextAttemptAt": None, "passesAt": None, "timestamp": 1_795_233_602_120,
    "cmd": "ON",
    "command": "ON", "params": None, "paramsSchema": None, "result": {"relay": "ON"}, "label": "Switch on", "queuedAt": None,
    "target": None, "commands": ["ON", "OFF"], "activeDays": [1, 2, 3, 4, 5], "activeFromMinute": 480, "activeToMinute": 1_080,
    "timezone": "Europe/Berlin", "rateLimitPerMinute": 10, "slot": 0, "onTs": NOW_S, "offTs": NOW_S + 3_600, "onCommand": None,
    "offCommand": None, "rrule": "FREQ=DAILY", "misfireGraceSeconds": 300, "lastOutcome": None, "priority": 100, "forSeconds": 0,
    "cooldownSeconds": 0, "clearConditions": [], "match": "ALL", "metric": "temperature", "metrics": ["temperature", "humidity"],
    "value": 31.4, "valueText": None, "unit": "celsius", "comparator": ">", "actual": 31.4, "expected": 30, "min": 20.1,
    "max": 31.4,
    "mean": 24.75, "count": 60, "sum": 1_485.0, "last": 24.2, "from": THEN, "to": None, "cursor": "eDQy",
    "url": "https://example.com/hooks/latchboard",
    "disabledReason": None, "attempt": 1, "statusCode": 204, "durationMs": 84, "error": None, "code": None, "details": None,
    "eventType": "relay_changed", "source": f"user:{USER}", "requestedBy": f"apikey:{KEY}", "id": KEY, "total": 42,
    "messages": 60, "firedAt": None, "why": "temperature 31.4 > 30", "complete": True, "kind": "ACTION", "reason": None,
}  # fmt: skip

EXPORTS = {
    "text/csv": f"metric,value,valueText,unit,recordedAt\r\ntemperature,31.4,,celsius,{LATER}\r\n",
    "application/x-ndjson": f'{{"metric":"temperature","value":31.4,"valueText":null,"unit":"celsius","recordedAt":"{LATER}"}}\n',
}
MODELS: dict[str, Any] = {
    "KeyReply.name": "Irrigation robot", "MadeKeyReply.name": "Irrigation robot", "SubjectReply.name": "Irrigation robot",
    "SubjectReply.type": "apikey", "ProjectReply.name": "Greenhouse", "DeviceProject.name": "Greenhouse",
    "GrantedProject.name": "Greenhouse",
    "GrantedDevice.name": "Pump 1", "DeviceReply.name": "Pump 1", "BoardReply.name": "ESP32 DevKit", "AppReply.name": "Pump",
    "DeviceTypeReply.name": "Dimmer", "DefinitionReply.name": "ON", "DefinitionReply.requiresApproval": False,
    "DeviceReply.deviceStatus": "ACTIVE", "ToggledReply.deviceStatus": "ACTIVE", "RevokedReply.deviceStatus": "REVOKED",
    "Accepted.status": "SENT", "Answered.status": "DONE", "ExecutionReply.status": "DONE", "ExecutionReply.source": "apikey",
    "ApprovalReply.status": "APPROVED", "GrantReply.scope": "WRITE", "KeyGrantReply.scope": "WRITE",
    "KeyGrantReply.project": None,
    "GrantReply.expiresAt": None, "KeyGrantReply.expiresAt": None, "GrantFinding.code": None,
    "AccessReply.message": "ON is allowed by this grant.", "FindingReply.message": "Passes.",
    "AccessReply.waitsForApproval": False,
    "EventReply.id": EVENT, "EventReply.description": "The relay was switched on", "RuleReply.name": "Overheat",
    "RuleReply.clearConditions": [], "RuleReply.action": {"command": "OFF", "params": None}, "ScheduleReply.label": "Morning",
    "ScheduleReply.offCommand": {"command": "OFF", "params": None}, "EventPage.hasMore": False, "EventPage.cursor": None,
    "ExecutionsPage.hasMore": False, "ExecutionsPage.cursor": None,
}  # fmt: skip
"""`Model.field` where a name means something else there."""


class Examples:
    """`definitions`: the document's schemas by name."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def body(self, schema: Schema) -> Any:
        name = _name(schema)
        return BODIES[name] if name in BODIES else self.answer(schema)

    def answer(self, schema: Schema, place: str = "") -> Any:
        name = _name(schema)
        if name:
            return self._object(self._definitions[name], name) if "properties" in self._definitions[name] else self.answer(
                self._definitions[name], place
            )  # fmt: skip
        for word in ("const", "default"):
            if schema.get(word) is not None:
                return schema[word]
        for word in ("enum", "examples"):
            if schema.get(word):
                return schema[word][0]
        kinds = [one for one in schema.get("anyOf", schema.get("oneOf", [])) if one != {"type": "null"}]
        if kinds:
            return self.answer(kinds[0], place)
        return self._plain(schema, place)

    def _plain(self, schema: Schema, place: str) -> Any:
        if schema.get("type") == "array":
            return [self.answer(schema["items"], place)] if schema.get("items") else []
        if "properties" in schema:
            return self._object(schema, place)
        words: dict[Any, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "object": {}}
        return words.get(schema.get("type"))

    def _object(self, schema: Schema, name: str) -> dict[str, Any]:
        return {field: self._field(name, field, of) for field, of in schema["properties"].items()}

    def _field(self, model: str, field: str, schema: Schema) -> Any:
        place = f"{model}.{field}"
        if place in MODELS:
            return MODELS[place]
        if field in VALUES and not _name(schema) and "enum" not in schema and "const" not in schema:
            value = VALUES[field]
            if schema.get("type") != "array" or "$ref" not in schema["items"]:
                return value
        return self.answer(schema, place)


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]
