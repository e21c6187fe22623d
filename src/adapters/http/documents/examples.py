"""Examples for the OpenAPI document: requests and messages from here, responses from a recorded run.

A request example shows what a client typically sends, so it is written out whole. One that is composed of its fields, and that of
a webhook's message, has the value of `FIELD_EXAMPLES` for every field of that name; an entry `Model.field` in
`MODEL_FIELD_EXAMPLES` overrides it for one model. A test validates each example against its schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from domain.kernel.clock import DAY_MS, to_iso
from domain.kernel.dataclasses import service

DEVICE_ID = "dev_4k2m8q0v6x1z3b5n7p9r"
PROJECT_ID = "prj_7c1d9f3h5j2k4m6n8p0q"
DEVICE_TYPE_ID = "dty_2b4d6f8h0j1k3m5n7p9r"
KEY_ID = "key_9r7p5n3m1k0j8h6f4d2b"
MEMBERSHIP_ID = "mbr_3n5p7r9t1v2x4z6b8d0f"
USER_ID = "usr_8d6b4z2x1v9t7r5p3n0m"
EVENT_ID = "evt_7l5j3h1f9d8b6z4x2v0t"
UPDATED_AT = "2026-11-21T04:00:02.120Z"
SLOT_ON_S, NEXT_FIRE_AT = 2_053_828_800, "2035-01-31T04:00:00.000Z"
"""Far ahead: the service refuses a request for the past."""
EXPIRES_AT, EXPIRES_AFTER_MS = "2035-01-01T00:00:00.000Z", 30 * DAY_MS
"""The service refuses some expiries of more than a year ahead. So the served one is this long after the day of the request, and
this time stands for it."""
OVERHEAT_RULE: Mapping[str, Any] = {
    "name": "Overheat",
    "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}],
    "action": {"command": "OFF"},
}

REQUEST_EXAMPLES: dict[str, Any] = {
    "LoginRequest": {"email": "ada@example.com", "password": "four words only you know"},
    "UnlockRequest": {"token": "b7Qe2LmXc9TzR4uWk1HsY6vJ8dPn3aFg5oKx0iMz"},
    "SecondFactorLoginRequest": {"challengeToken": "b7Qe2LmXc9TzR4uWk1HsY6vJ8dPn3aFg5oKx0iMz", "totp": "402913"},
    "StepUpRequest": {"totp": "402913"},
    "TotpConfirmRequest": {"code": "402913"},
    "PasswordChangeRequest": {"currentPassword": "four words only you know", "newPassword": "a new and longer passphrase"},
    "PasswordChangeByCodeRequest": {"otp": "402913", "newPassword": "a new and longer passphrase"},
    "FleetApplyRequest": {
        "document": {
            "version": 1,
            "devices": [
                {
                    "externalId": "pump-001",
                    "name": "Pump 1",
                    "boardType": "ESP32",
                    "appType": "PUMP",
                    "metrics": ["temperature"],
                    "rules": [
                        {
                            "name": "Too hot",
                            "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}],
                            "action": {"command": "OFF"},
                        }
                    ],
                }
            ],
            "groups": [{"name": "Pumps", "devices": ["pump-001"]}],
            "apiKeys": [{"name": "nightly"}],
            "grants": [{"apiKey": "nightly", "group": "Pumps", "commands": ["ON", "OFF"]}],
        },
        "credentials": "NEW",
    },
    "MemberCreateRequest": {
        "email": "grace@example.com",
        "name": "Grace",
        "role": "Member",
        "password": "four words only you know",
    },
    "InvitationCreateRequest": {"email": "grace@example.com", "name": "Grace", "role": "Member"},
    "InvitationPreviewRequest": {"token": "b7Qe2LmXc9TzR4uWk1HsY6vJ8dPn3aFg5oKx0iMz"},
    "InvitationAcceptRequest": {"token": "b7Qe2LmXc9TzR4uWk1HsY6vJ8dPn3aFg5oKx0iMz", "password": "four words only you know"},
    "MemberUpdateRequest": {"role": "Admin"},
    "ApiKeyCreateRequest": {"name": "Irrigation robot", "allowedNetworks": ["192.168.1.0/24"]},
    "ApiKeyRotateRequest": {"overlapSeconds": 86_400},
    "ApiKeyUpdateRequest": {"enabled": False},
    "DeviceRegistrationRequest": {
        "name": "Pump 1",
        "boardType": "ESP32",
        "appType": "PUMP",
        "projectId": PROJECT_ID,
        "tags": ["north"],
    },
    "DeviceUpdateRequest": {"name": "Pump 1, left", "location": "Hall 2"},
    "BulkRegistrationRequest": {
        "devices": [
            {"name": f"Pump {number}", "boardType": "ESP32", "appType": "PUMP", "externalId": f"pump-00{number}"}
            for number in (1, 2)
        ],
        "credentials": "NEW",
    },
    "CredentialsCreateRequest": {"rotate": True},
    "CredentialsRevealRequest": {"password": "four words only you know"},
    "DeviceTypeCreateRequest": {
        "name": "Dimmer",
        "commands": [{"name": "LEVEL", "label": "Level", "paramsSchema": {"type": "integer"}}],
    },
    "ProjectRequest": {"name": "North field"},
    "ProjectUpdateRequest": {"name": "North field, drip"},
    "DeviceTypeUpdateRequest": {"name": "Dimmer, 2 channels"},
    "CommandSendRequest": {"cmd": "ON", "ttlSeconds": 60, "waitSeconds": 5},
    "CommandDefinitionCreateRequest": {"name": "FLUSH", "label": "Flush the pipe", "kind": "ACTION", "requiresApproval": True},
    "CommandDefinitionUpdateRequest": {"label": "Flush", "requiresApproval": False},
    "ScheduleCreateRequest": {
        "slot": 0,
        "onTs": SLOT_ON_S,
        "offTs": SLOT_ON_S + 3_600,
        "rrule": "FREQ=DAILY",
        "timezone": "Europe/Berlin",
    },
    "ScheduleUpdateRequest": {"slot": 0, "offTs": SLOT_ON_S + 7_200},
    "RuleCreateRequest": {**OVERHEAT_RULE, "forSeconds": 60},
    "RuleUpdateRequest": {"enabled": False},
    "RuleDryRunRequest": {"readings": {"temperature": 31}},
    "NotificationSettingsRequest": {
        "topics": ["APPROVALS", "OFFLINE"],
        "quietFromMinute": 1320,
        "quietToMinute": 360,
        "timezone": "Europe/Berlin",
        "language": "de",
    },
    "ChannelCreateRequest": {"name": "Phone", "ntfy": {"url": "https://ntfy.sh", "topic": "latch-k3v9x2"}},
    "LinkDecisionRequest": {"token": "eyJhbGciOiJIUzI1NiJ9.e30.c2ln", "totp": "492039"},
    "LinkTokenRequest": {"token": "eyJhbGciOiJIUzI1NiJ9.e30.c2ln"},
    "RuleDraftDryRunRequest": {
        "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}],
        "forSeconds": 60,
        "from": 1_800_000_000_000,
        "to": 1_800_604_800_000,
    },
    "GrantCreateRequest": {
        "apiKeyId": KEY_ID,
        "commands": ["ON", "OFF"],
        "scope": "WRITE",
        "activeDays": [1, 2, 3, 4, 5],
        "activeFromMinute": 480,
        "activeToMinute": 1_080,
        "timezone": "Europe/Berlin",
        "rateLimitPerMinute": 10,
    },
    "GroupGrantCreateRequest": {"apiKeyId": KEY_ID, "commands": ["ON", "OFF"], "rateLimitPerMinute": 10},
    "GroupMembersRequest": {"add": [DEVICE_ID]},
    "GrantUpdateRequest": {"expiresAt": EXPIRES_AT},
    "WebhookCreateRequest": {"keyId": KEY_ID, "url": "https://example.com/hooks/latchboard"},
    "WebhookUpdateRequest": {"enabled": True},
}

FIELD_EXAMPLES: dict[str, Any] = {
    "accountId": "acc_0m2n4p6q8r1s3t5u7v9w",
    "deviceIds": [DEVICE_ID],
    "deviceToken": "b7Qe2LmXc9TzR4uWk1Hs.0d1f2c3b4a5968778695a4b3c2d1e0f00d1f2c3b4a5968778695a4b3c2d1e0f0",
    "challengeToken": "b7Qe2LmXc9TzR4uWk1HsY6vJ8dPn3aFg5oKx0iMz",
    "projectId": PROJECT_ID,
    "deviceId": DEVICE_ID,
    "deviceTypeId": DEVICE_TYPE_ID,
    "executionId": "exe_1a3c5e7g9i2k4m6o8q0s",
    "approvalId": "apv_6s4q2o0m8k7i5g3e1c9a",
    "eventId": EVENT_ID,
    "ruleId": "rul_4w6y8a0c2e1g3i5k7m9o",
    "scheduleId": "sched_9o7m5k3i1g0e8c6a4y2w",
    "webhookId": "whk_3p5r7t9v1x2z4b6d8f0h",
    "refreshToken": "Zk3vXq81mPbT0wYd5nRc7uHs2LgJ9aEo4iKfNx6QyBtVrCzM",
    "email": "ada@example.com",
    "description": None,
    "tags": ["north"],
    "expiresAt": EXPIRES_AT,
    "decidedBy": f"user:{USER_ID}",
    "cmd": "ON",
    "command": "ON",
    "slot": 0,
    "metric": "temperature",
    "value": 31.4,
    "valueText": None,
    "unit": "celsius",
    "code": None,
    "requestedBy": f"apikey:{KEY_ID}",
    "reason": None,
}

MODEL_FIELD_EXAMPLES: dict[str, Any] = {
    "ProvisioningCodeRequest.hardwareIds": ["24:6F:28:AA:01:02"],
    "DeviceClaimRequest.code": "lbp_q8Zr2Lk5Tn9Wc3Vb7Xm1Hd6Jf4",
    "DeviceClaimRequest.hardwareId": "24:6F:28:AA:01:02",
    "DeviceClaimRequest.claimToken": "mQ3vX8kZt1Rw6Yb0Ns5Lc9Ha2Df7Gj4P",
    "DeviceClaimRequest.name": "Pump 7",
    "DecisionRequest.note": "Not longer than an hour",
}


def recorded_answers() -> dict[str, dict[str, Any]]:
    """The answers of a real run, by `METHOD /path` and then by the status, with the code of an error or the content type of what
    is not JSON: `200`, `404 NOT_FOUND`, `200 text/csv`. `make examples` writes them."""
    found: dict[str, dict[str, Any]] = json.loads(files(__package__).joinpath("recorded.json").read_text("utf-8"))
    return found


def with_times_to_come(document: str, now_ms: int) -> str:
    """The text of the document with examples that can be sent now."""
    return document.replace(EXPIRES_AT, to_iso(now_ms // DAY_MS * DAY_MS + EXPIRES_AFTER_MS))


Schema = Mapping[str, Any]


@service
class ExampleBuilder:
    """`definitions`: the document's schemas by name."""

    definitions: Mapping[str, Schema]

    def request_example(self, schema: Schema) -> Any:
        name = _referenced_name(schema)
        return REQUEST_EXAMPLES[name] if name in REQUEST_EXAMPLES else self.schema_example(schema)

    def schema_example(self, schema: Schema) -> Any:
        name = _referenced_name(schema)
        if name:
            found = self.definitions[name]
            return self._object_example(found, name) if "properties" in found else self.schema_example(found)
        for word in ("const", "default"):
            if schema.get(word) is not None:
                return schema[word]
        for word in ("enum", "examples"):
            if schema.get(word):
                return schema[word][0]
        kinds = [one for one in schema.get("anyOf", schema.get("oneOf", [])) if one != {"type": "null"}]
        if kinds:
            return self.schema_example(kinds[0])
        if schema.get("type") == "array":
            return [self.schema_example(schema["items"])] if schema.get("items") else []
        words: dict[Any, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "object": {}}
        return words.get(schema.get("type"))

    def _object_example(self, schema: Schema, name: str) -> dict[str, Any]:
        return {field: self._field_example(name, field, of) for field, of in schema["properties"].items()}

    def _field_example(self, model: str, field: str, schema: Schema) -> Any:
        place = f"{model}.{field}"
        if place in MODEL_FIELD_EXAMPLES:
            return MODEL_FIELD_EXAMPLES[place]
        if schema.get("examples") and schema.get("format") != "date-time":  # every time has the same one
            return schema["examples"][0]
        if field in FIELD_EXAMPLES and not _referenced_name(schema) and "enum" not in schema and "const" not in schema:
            value = FIELD_EXAMPLES[field]
            if schema.get("type") != "array" or "$ref" not in schema["items"]:
                return value
        return self.schema_example(schema)


def _referenced_name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]
