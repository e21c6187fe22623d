"""An example of every body and every answer of the document, built out of the same schemas.

What a field of a name looks like is said once, and holds wherever the name stands; `Model.field` says it for one place. A request
shows what one sends, not all that one could, so those are said whole. A test holds each example to its schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

DEVICE_ID = "dev_4k2m8q0v6x1z3b5n7p9r"
PROJECT_ID = "prj_7c1d9f3h5j2k4m6n8p0q"
DEVICE_TYPE_ID = "dty_2b4d6f8h0j1k3m5n7p9r"
KEY_ID = "key_9r7p5n3m1k0j8h6f4d2b"
MEMBERSHIP_ID = "mbr_3n5p7r9t1v2x4z6b8d0f"
USER_ID = "usr_8d6b4z2x1v9t7r5p3n0m"
ACCOUNT_ID = "acc_0m2n4p6q8r1s3t5u7v9w"
GRANT_ID = "grt_5h3f1d9b7z6x4v2t0r8p"
EXECUTION_ID = "exe_1a3c5e7g9i2k4m6o8q0s"
APPROVAL_ID = "apv_6s4q2o0m8k7i5g3e1c9a"
COMMAND_ID = "cmd_2t4v6x8z0b1d3f5h7j9l"
EVENT_ID = "evt_7l5j3h1f9d8b6z4x2v0t"
RULE_ID = "rul_4w6y8a0c2e1g3i5k7m9o"
SCHEDULE_ID = "sched_9o7m5k3i1g0e8c6a4y2w"
WEBHOOK_ID = "whk_3p5r7t9v1x2z4b6d8f0h"
DELIVERY_ID = "whd_8h6f4d2b0z9x7v5t3r1p"
CREATED_AT, UPDATED_AT, NOW_S = "2026-11-21T04:00:00.000Z", "2026-11-21T04:00:02.120Z", 1_795_233_600
OVERHEAT_RULE: Mapping[str, Any] = {
    "name": "Overheat",
    "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}],
    "action": {"command": "OFF"},
}

REQUEST_EXAMPLES: dict[str, Any] = {
    "Login": {"email": "ada@example.com", "password": "four words only you know"},
    "RefreshTokenBody": {"refreshToken": "Zk3vXq81mPbT0wYd5nRc7uHs2LgJ9aEo4iKfNx6QyBtVrCzM"},
    "ChangePassword": {"otp": "402913", "newPassword": "a new and longer passphrase"},
    "NewMember": {"email": "grace@example.com", "name": "Grace", "role": "Member", "password": "four words only you know"},
    "MemberChange": {"role": "Admin"},
    "ProjectBody": {"name": "Greenhouse"},
    "NewKey": {"name": "Irrigation robot"},
    "KeyChange": {"enabled": False},
    "NewDevice": {"name": "Pump 1", "boardType": "ESP32", "appType": "PUMP", "projectId": PROJECT_ID, "tags": ["north"]},
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
    "NewRule": {**OVERHEAT_RULE, "forSeconds": 60},
    "RuleChanges": {"enabled": False},
    "TestRule": {"readings": {"temperature": 31}},
    "NewGrant": {
        "apiKeyId": KEY_ID,
        "commands": ["ON", "OFF"],
        "scope": "WRITE",
        "activeDays": [1, 2, 3, 4, 5],
        "activeFromMinute": 480,
        "activeToMinute": 1_080,
        "timezone": "Europe/Berlin",
        "rateLimitPerMinute": 10,
    },
    "GrantChanges": {"expiresAt": "2027-01-01T00:00:00.000Z"},
    "NewWebhook": {"keyId": KEY_ID, "url": "https://example.com/hooks/latchboard"},
    "WebhookChanges": {"enabled": True},
}

FIELD_EXAMPLES: dict[str, Any] = {
    "accountId": ACCOUNT_ID,
    "userId": USER_ID,
    "membershipId": MEMBERSHIP_ID,
    "projectId": PROJECT_ID,
    "deviceId": DEVICE_ID,
    "deviceTypeId": DEVICE_TYPE_ID,
    "keyId": KEY_ID,
    "apiKeyId": KEY_ID,
    "grantId": GRANT_ID,
    "executionId": EXECUTION_ID,
    "approvalId": APPROVAL_ID,
    "commandId": COMMAND_ID,
    "eventId": EVENT_ID,
    "ruleId": RULE_ID,
    "scheduleId": SCHEDULE_ID,
    "webhookId": WEBHOOK_ID,
    "deliveryId": DELIVERY_ID,
    "webhookEventId": EVENT_ID,
    "accessToken": "eyJhbGciOiJIUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJ1c3JfOGQ2YjR6Mngxdjl0N3I1cDNuMG0ifQ.c2lnbmF0dXJl",
    "refreshToken": REQUEST_EXAMPLES["RefreshTokenBody"]["refreshToken"],
    "accountName": "Analytical Engines",
    "email": "ada@example.com",
    "name": "Ada",
    "plan": "self-hosted",
    "role": "Owner",
    "deviceCount": 12,
    "address": "203.0.113.7",
    "key": "sk_live_EXAMPLEexampleEXAMPLEexampleEXAMPLEexamp000000",
    "prefix": "sk_live_EXAM",
    "secretPrefix": "whsec_Zk3v",
    "secret": "whsec_Zk3vXq81mPbT0wYd5nRc7uHs2LgJ9aEo4iKfNx6QyBs=",
    "deviceName": "Pump 1",
    "boardType": "ESP32",
    "appType": "PUMP",
    "appTypeOther": None,
    "description": None,
    "location": "Hall 2",
    "manufacturer": None,
    "model": None,
    "industry": None,
    "tags": ["north"],
    "configFormat": "arduino",
    "configBlock": '// Pump 1\n#define DEVICE_ID "dev_4k2m8q0v6x1z3b5n7p9r"\n',
    "note": "Without the password; reveal the credentials to get it.",
    "mqttUsername": DEVICE_ID,
    "mqttHost": "latchboard.example.com",
    "mqttPassword": "q8Zr2Lk5Tn9Wc3Vb7Xm1Hd6Jf4Gs0PyA",
    "mqttPort": 1_883,
    "wsPort": 8_083,
    "relayState": True,
    "state": "ON",
    "lastSeen": UPDATED_AT,
    "createdAt": CREATED_AT,
    "updatedAt": UPDATED_AT,
    "recordedAt": UPDATED_AT,
    "expiresAt": "2026-11-21T04:01:00.000Z",
    "finishedAt": UPDATED_AT,
    "decidedAt": UPDATED_AT,
    "decidedBy": f"user:{USER_ID}",
    "lastUsedAt": UPDATED_AT,
    "lastFiredAt": None,
    "nextFireAt": "2026-11-22T04:00:00.000Z",
    "nextAttemptAt": None,
    "passesAt": None,
    "timestamp": 1_795_233_602_120,
    "cmd": "ON",
    "command": "ON",
    "params": None,
    "paramsSchema": None,
    "result": {"relay": "ON"},
    "label": "Switch on",
    "queuedAt": None,
    "target": None,
    "commands": ["ON", "OFF"],
    "activeDays": [1, 2, 3, 4, 5],
    "activeFromMinute": 480,
    "activeToMinute": 1_080,
    "timezone": "Europe/Berlin",
    "rateLimitPerMinute": 10,
    "slot": 0,
    "onTs": NOW_S,
    "offTs": NOW_S + 3_600,
    "onCommand": None,
    "offCommand": None,
    "rrule": "FREQ=DAILY",
    "misfireGraceSeconds": 300,
    "lastOutcome": None,
    "priority": 100,
    "forSeconds": 0,
    "cooldownSeconds": 0,
    "clearConditions": [],
    "match": "ALL",
    "metric": "temperature",
    "metrics": ["temperature", "humidity"],
    "value": 31.4,
    "valueText": None,
    "unit": "celsius",
    "comparator": ">",
    "actual": 31.4,
    "expected": 30,
    "min": 20.1,
    "max": 31.4,
    "mean": 24.75,
    "count": 60,
    "sum": 1_485.0,
    "last": 24.2,
    "from": CREATED_AT,
    "to": None,
    "cursor": "eDQy",
    "url": "https://example.com/hooks/latchboard",
    "disabledReason": None,
    "attempt": 1,
    "statusCode": 204,
    "durationMs": 84,
    "error": None,
    "code": None,
    "details": None,
    "eventType": "relay_changed",
    "source": f"user:{USER_ID}",
    "requestedBy": f"apikey:{KEY_ID}",
    "id": KEY_ID,
    "total": 42,
    "messages": 60,
    "firedAt": None,
    "why": "temperature 31.4 > 30",
    "complete": True,
    "kind": "ACTION",
    "reason": None,
}

EXPORT_EXAMPLES = {
    "text/csv": f"metric,value,valueText,unit,recordedAt\r\ntemperature,31.4,,celsius,{UPDATED_AT}\r\n",
    "application/x-ndjson": f'{{"metric":"temperature","value":31.4,"valueText":null,"unit":"celsius","recordedAt":"{UPDATED_AT}"}}\n',  # noqa: E501
}
MODEL_FIELD_EXAMPLES: dict[str, Any] = {
    "KeyReply.name": "Irrigation robot",
    "MadeKeyReply.name": "Irrigation robot",
    "SubjectReply.name": "Irrigation robot",
    "SubjectReply.type": "apikey",
    "ProjectReply.name": "Greenhouse",
    "DeviceProject.name": "Greenhouse",
    "GrantedProject.name": "Greenhouse",
    "GrantedDevice.name": "Pump 1",
    "DeviceReply.name": "Pump 1",
    "BoardReply.name": "ESP32 DevKit",
    "AppReply.name": "Pump",
    "DeviceTypeReply.name": "Dimmer",
    "DefinitionReply.name": "ON",
    "DefinitionReply.requiresApproval": False,
    "DeviceReply.deviceStatus": "ACTIVE",
    "ToggledReply.deviceStatus": "ACTIVE",
    "RevokedReply.deviceStatus": "REVOKED",
    "Accepted.status": "SENT",
    "Answered.status": "DONE",
    "ExecutionReply.status": "DONE",
    "ExecutionReply.source": "apikey",
    "ApprovalReply.status": "APPROVED",
    "GrantReply.scope": "WRITE",
    "KeyGrantReply.scope": "WRITE",
    "KeyGrantReply.project": None,
    "GrantReply.expiresAt": None,
    "KeyGrantReply.expiresAt": None,
    "GrantFinding.code": None,
    "AccessReply.message": "ON is allowed by this grant.",
    "FindingReply.message": "Passes.",
    "AccessReply.waitsForApproval": False,
    "EventReply.id": EVENT_ID,
    "EventReply.description": "The relay was switched on",
    "RuleReply.name": "Overheat",
    "RuleReply.clearConditions": [],
    "RuleReply.action": {"command": "OFF", "params": None},
    "ScheduleReply.label": "Morning",
    "ScheduleReply.offCommand": {"command": "OFF", "params": None},
    "EventPage.hasMore": False,
    "EventPage.cursor": None,
    "ExecutionsPage.hasMore": False,
    "ExecutionsPage.cursor": None,
}
"""`Model.field` where a name means something else there."""


class ExampleBuilder:
    """`definitions`: the document's schemas by name."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def request_example(self, schema: Schema) -> Any:
        name = _referenced_name(schema)
        return REQUEST_EXAMPLES[name] if name in REQUEST_EXAMPLES else self.schema_example(schema)

    def schema_example(self, schema: Schema, place: str = "") -> Any:
        name = _referenced_name(schema)
        if name:
            return (
                self._object_example(self._definitions[name], name)
                if "properties" in self._definitions[name]
                else self.schema_example(self._definitions[name], place)
            )
        for word in ("const", "default"):
            if schema.get(word) is not None:
                return schema[word]
        for word in ("enum", "examples"):
            if schema.get(word):
                return schema[word][0]
        kinds = [one for one in schema.get("anyOf", schema.get("oneOf", [])) if one != {"type": "null"}]
        if kinds:
            return self.schema_example(kinds[0], place)
        return self._primitive_example(schema, place)

    def _primitive_example(self, schema: Schema, place: str) -> Any:
        if schema.get("type") == "array":
            return [self.schema_example(schema["items"], place)] if schema.get("items") else []
        if "properties" in schema:
            return self._object_example(schema, place)
        words: dict[Any, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "object": {}}
        return words.get(schema.get("type"))

    def _object_example(self, schema: Schema, name: str) -> dict[str, Any]:
        return {field: self._field_example(name, field, of) for field, of in schema["properties"].items()}

    def _field_example(self, model: str, field: str, schema: Schema) -> Any:
        place = f"{model}.{field}"
        if place in MODEL_FIELD_EXAMPLES:
            return MODEL_FIELD_EXAMPLES[place]
        if field in FIELD_EXAMPLES and not _referenced_name(schema) and "enum" not in schema and "const" not in schema:
            value = FIELD_EXAMPLES[field]
            if schema.get("type") != "array" or "$ref" not in schema["items"]:
                return value
        return self.schema_example(schema, place)


def _referenced_name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]
