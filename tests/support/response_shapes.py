"""What each response must be by the specification and the wire contract: status, every field, the kind of every value.

No field may be missing and none may be more. `shape_errors(answer, wanted)` lists the differences.
"""

from __future__ import annotations

import re
from typing import Any

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
VALUE_KINDS: dict[str, Any] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "date-time": lambda value: isinstance(value, str) and ISO.fullmatch(value) is not None,
    "ms": lambda value: isinstance(value, int) and 1.6e12 < value < 4e12,
    "any": lambda value: True,
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "strings": lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    "integers": lambda value: isinstance(value, list) and all(isinstance(each, int) for each in value),
    "optional-id": lambda value: isinstance(value, str),
    "null": lambda value: value is None,
}
ID_PREFIXES = {
    "accountId": "acc",
    "userId": "usr",
    "membershipId": "mbr",
    "projectId": "prj",
    "deviceId": "dev",
    "deviceTypeId": "dty",
    "commandId": "cmd",
    "executionId": "exe",
    "scheduleId": "sched",
    "ruleId": "rul",
    "grantId": "grt",
    "keyId": "key",
    "approvalId": "apv",
    "webhookId": "whk",
    "deliveryId": "whd",
    "eventId": "evt",
    "webhookEventId": "evt",
}


def shape(text: str) -> dict[str, str]:
    """`name kind, other kind?`: a kind with `?` may be null; `=X` is that very text."""
    return dict(tuple(part.split()) for part in text.split(","))  # type: ignore[misc]


OK = shape("ok boolean")
COMMAND = shape("command string, params any, channel integer")
TOKENS = shape("accessToken string, refreshToken string, expiresIn integer")
KEY = shape(
    "keyId string, name string, type =SECRET, prefix string, enabled boolean, lastUsedAt date-time?, createdAt date-time,"
    "expiresAt date-time?, endedAt date-time?, allowedNetworks strings, previousPrefix string?, previousExpiresAt date-time?, lastUsedPrefix string?"
)
DEVICE = shape(
    "deviceId string, name string, boardType string, appType string, appTypeOther string?, deviceStatus string, enabled boolean,"
    "deviceTypeId string?, relayState boolean?, isOnline boolean, lastSeen date-time?, createdAt date-time, project object, profile string,"
    "description string?, location string?, manufacturer string?, model string?, industry string?, tags strings, groupIds strings,"
    "health object, externalId string?, channels array"
)
CREDENTIALS = shape(
    "mqttUsername string, mqttPassword string, mqttHost string, mqttPort integer, wsPort integer, configBlock string"
)
SCHEDULE = shape(
    "scheduleId string, deviceId string, slot integer, onTs integer, offTs integer, label string, enabled boolean, status string,"
    "onCommand object, offCommand object, rrule string?, timezone string?, nextFireAt date-time?, nextEdge string?, lastFiredAt date-time?,"
    "lastOutcome string?, endedAt date-time?, firmwareSynced boolean, misfire string, misfireGraceSeconds integer"
)
RULE = shape(
    "ruleId string, deviceId string, name string, enabled boolean, priority integer, conditions array, action object,"
    "waitsFor array, lastMatched boolean, match string, forSeconds number, cooldownSeconds number, clearConditions array,"
    "disabledReason string?, createdAt date-time"
)
GRANT = shape(
    "grantId string, appliesVia string, commands strings, scope string, expiresAt date-time?, endedAt date-time?, activeDays integers,"
    "activeFromMinute integer?, activeToMinute integer?, timezone string, rateLimitPerMinute integer?, createdAt date-time,"
    "subject object, channels integers"
)
DEFINITION = shape(
    "commandId string?, name string, label string, description string?, kind string, paramsSchema any, shape string,"
    "requiresApproval boolean, channels integers"
)
APPROVAL = shape(
    "approvalId string, deviceId string, cmd string, channel integer, params any, status string, createdAt date-time, expiresAt date-time,"
    "requestedBy any, reason string?, decidedBy any, decidedAt date-time?, note string?, executionId string?"
)
EXECUTION = shape(
    "executionId string, cmd string, channel integer, params any, status string, source string, result any, createdAt date-time,"
    "expiresAt date-time, finishedAt date-time?, approvalId string?"
)
EVENT = shape(
    "id string, deviceId optional-id, deviceName string, eventType string, description string, timestamp ms, source string,"
    "address string"
)
WEBHOOK = shape(
    "webhookId string, keyId string, url string, types strings, secretPrefix string, enabled boolean, disabledReason string?,"
    "createdAt date-time, updatedAt date-time, format string"
)
DELIVERY = shape(
    "deliveryId string, eventType string, deviceId string?, attempt integer, statusCode integer?, error string?,"
    "succeeded boolean, createdAt date-time, webhookEventId string, durationMs integer?, nextAttemptAt date-time?"
)
MEMBER = shape("membershipId string, userId string, email string, name string, role string, createdAt date-time")
PROJECT = shape("projectId string, name string, deviceCount integer, createdAt date-time")
READING = shape("metric string, value number?, valueText string?, unit string?, recordedAt date-time")

ANSWERS: dict[str, tuple[int, Any]] = {
    "POST /auth/login": (200, TOKENS | {"user": "object", "deviceToken": "string"}),
    "POST /auth/refresh": (200, TOKENS),
    "POST /auth/logout": (200, OK),
    "POST /auth/password/request-otp": (200, OK),
    "POST /auth/change-password": (200, OK),
    "GET /auth/me": (
        200,
        shape(
            "userId string, email string, name string, emailVerified boolean, accountId string, accountName string, plan string,"
            "role string, deviceCount integer, hasPassword boolean, hasGoogleAuth boolean, hasGithubAuth boolean"
        ),
    ),
    "POST /members": (201, MEMBER),
    "GET /members": (200, [MEMBER]),
    "GET /projects": (200, [PROJECT]),
    "GET /keys": (200, [KEY]),
    "POST /keys": (201, KEY | {"key": "string"}),
    "PATCH /keys/{keyId}": (200, KEY | OK),
    "GET /keys/{keyId}/grants": (
        200,
        [
            shape(
                "grantId string, appliesVia string, device object?, project object?, group object?, commands strings, scope string,"
                "expiresAt date-time?, endedAt date-time?, rateLimitPerMinute integer?, createdAt date-time"
            )
        ],
    ),
    "DELETE /keys/{keyId}": (200, OK),
    "POST /devices/register": (201, DEVICE),
    "GET /devices": (200, [DEVICE]),
    "GET /devices/{deviceId}": (200, DEVICE),
    "PUT /devices/{deviceId}": (200, DEVICE | OK),
    "POST /devices/{deviceId}/credentials": (200, CREDENTIALS),
    "POST /devices/{deviceId}/credentials/reveal": (200, CREDENTIALS),
    "GET /devices/{deviceId}/config": (200, shape("configBlock string, note string")),
    "GET /devices/{deviceId}/events": (200, [EVENT]),
    "PATCH /devices/{deviceId}/toggle": (200, DEVICE | OK),
    "POST /devices/{deviceId}/revoke": (200, shape("ok boolean, deviceStatus =REVOKED")),
    "DELETE /devices/{deviceId}": (200, OK),
    "GET /devices/{deviceId}/commands": (200, [DEFINITION]),
    "POST /devices/{deviceId}/commands": (201, DEFINITION),
    "PATCH /devices/{deviceId}/commands/{commandId}": (200, DEFINITION | OK),
    "DELETE /devices/{deviceId}/commands/{commandId}": (200, OK),
    "POST /devices/{deviceId}/command": (200, shape("ok boolean, executionId string, status string, result any")),
    "POST /devices/{deviceId}/command for approval": (
        202,
        shape("ok boolean, approvalRequired boolean, approvalId string, status =PENDING, note string?"),
    ),
    "GET /devices/{deviceId}/executions": (200, {"data": [EXECUTION], "hasMore": "boolean", "cursor": "string"}),
    "GET /devices/{deviceId}/executions/{executionId}": (200, EXECUTION),
    "GET /devices/{deviceId}/schedules": (200, [SCHEDULE]),
    "POST /devices/{deviceId}/schedules": (201, SCHEDULE),
    "PUT /devices/{deviceId}/schedules/{slot}": (200, SCHEDULE),
    "PUT /devices/{deviceId}/schedules": (200, SCHEDULE),
    "GET /devices/{deviceId}/schedules/context": (200, {"commands": [DEFINITION]}),
    "DELETE /devices/{deviceId}/schedules/{slot}": (200, OK),
    "GET /devices/{deviceId}/schedules/history": (200, [SCHEDULE]),
    "GET /devices/{deviceId}/rules": (200, [RULE]),
    "POST /devices/{deviceId}/rules/{ruleId}/test": (
        200,
        {
            "wouldFire": "boolean",
            "conditions": [shape("metric string, comparator string, expected any, actual any, holds boolean, why string")],
            "clearConditions": "array",
            "firedAt": "any",
            "messages": "any",
            "complete": "any",
        },
    ),
    "GET /devices/{deviceId}/access": (
        200,
        shape(
            "allowed boolean, waitsForApproval boolean, deviceTakesCommands boolean, code string?, message string,"
            "passesAt date-time?, grantId string?, grants array, expiresAt date-time?, allowedNetworks strings"
        ),
    ),
    "POST /projects": (201, PROJECT),
    "GET /catalog/boards": (
        200,
        [shape("id string, boardType string, name string, description string, profile string, configFormat string")],
    ),
    "GET /catalog/apps": (200, [shape("id string, appType string, name string, description string")]),
    "POST /devices/{deviceId}/rules": (201, RULE),
    "PATCH /devices/{deviceId}/rules/{ruleId}": (200, RULE),
    "GET /devices/{deviceId}/rules/context": (200, {"metrics": "strings", "commands": [DEFINITION]}),
    "DELETE /devices/{deviceId}/rules/{ruleId}": (200, OK),
    "GET /devices/{deviceId}/grants": (200, [GRANT]),
    "POST /devices/{deviceId}/grants": (201, GRANT),
    "PATCH /devices/{deviceId}/grants/{grantId}": (200, GRANT | OK),
    "DELETE /devices/{deviceId}/grants/{grantId}": (200, OK),
    "GET /devices/{deviceId}/approvals": (200, [APPROVAL]),
    "GET /approvals": (200, [APPROVAL]),
    "GET /devices/{deviceId}/approvals/{approvalId}": (200, APPROVAL),
    "POST /devices/{deviceId}/approvals/{approvalId}/deny": (200, APPROVAL | OK),
    "POST /devices/{deviceId}/approvals/{approvalId}/approve": (200, APPROVAL | OK),
    "GET /devices/{deviceId}/telemetry": (200, [READING]),
    "GET /devices/{deviceId}/telemetry?step=": (
        200,
        [shape("metric string, from date-time, min number, max number, mean number, count integer,sum number, last number")],
    ),
    "GET /devices/{deviceId}/telemetry/latest": (200, {"state": "any", "relayState": "boolean?", "telemetry": [READING]}),
    "GET /events": (200, {"data": [EVENT], "total": "integer", "hasMore": "boolean", "cursor": "string"}),
    "GET /webhooks": (200, [WEBHOOK]),
    "POST /webhooks": (201, WEBHOOK | {"secret": "string"}),
    "PATCH /webhooks/{webhookId}": (200, WEBHOOK | OK),
    "POST /webhooks/{webhookId}/rotate-secret": (200, WEBHOOK | {"secret": "string"}),
    "POST /webhooks/{webhookId}/ping": (200, shape("ok boolean, deliveryId string")),
    "GET /webhooks/{webhookId}/deliveries": (200, [DELIVERY]),
    "DELETE /webhooks/{webhookId}": (200, OK),
}


def shape_errors(value: Any, wanted: Any, path: str = "") -> list[str]:
    """The differences from `wanted`. A list describes each element; at least one is required."""
    if isinstance(wanted, list):
        if not isinstance(value, list) or not value:
            return [f"{path}: an array with something in it, not {value!r}"]
        return [each for position, item in enumerate(value) for each in shape_errors(item, wanted[0], f"{path}[{position}]")]
    if isinstance(wanted, dict):
        if not isinstance(value, dict):
            return [f"{path}: an object, not {value!r}"]
        missing = [f"{path}.{name} is missing" for name in wanted if name not in value]
        more = [f"{path}.{name} is nowhere promised" for name in value if name not in wanted]
        inside = [each for name in wanted if name in value for each in shape_errors(value[name], wanted[name], f"{path}.{name}")]
        return missing + more + inside
    if value is None:
        return [] if wanted.endswith("?") or wanted in ("any", "null") else [f"{path} is null"]
    if wanted.startswith("="):
        return [] if value == wanted[1:] else [f"{path} is {value!r}"]
    if not VALUE_KINDS[wanted.rstrip("?")](value):
        return [f"{path} is {value!r}, no {wanted}"]
    if wanted == "optional-id" and value == "":
        return []
    prefix = ID_PREFIXES.get(path.rpartition(".")[2])
    if prefix and not re.fullmatch(prefix + r"_[a-z0-9]{20,}", value):
        return [f"{path} is {value!r}, no id"]
    return []
