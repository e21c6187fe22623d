"""The topics of native devices, with their payloads, and the JSON Schema of telemetry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from adapters.mqtt.profiles.native_payload_types import (
    CommandPayload,
    HelloPayload,
    PlanRevisionPayload,
    ResultPayload,
    SchedulePlanPayload,
    StatePayload,
    TimePayload,
)
from domain.telemetry.reference_parser import MAX_NAME_LENGTH, MAX_TEXT_LENGTH

_VALUE = {"type": ["number", "boolean", "string"], "maxLength": MAX_TEXT_LENGTH}
_UNITS = {"type": "object", "description": "Units by metric."}
_TIME = {"type": "integer", "description": "Unix milliseconds; without it, the arrival counts."}
_NAMES = {"minLength": 1, "maxLength": MAX_NAME_LENGTH}

_ENVELOPE = {
    "title": "Readings under m",
    "type": "object",
    "required": ["m"],
    "properties": {"ts": _TIME, "m": {"type": "object", "propertyNames": _NAMES, "additionalProperties": _VALUE}, "u": _UNITS},
    "additionalProperties": False,
}

_FLAT = {
    "title": "Flat readings",
    "type": "object",
    "propertyNames": _NAMES,
    "properties": {"ts": _TIME, "m": _VALUE, "u": {"anyOf": [_UNITS, _VALUE]}},
    "additionalProperties": _VALUE,
}

TELEMETRY_SCHEMA: dict[str, Any] = {
    "description": "Readings by metric. A boolean counts as 1 or 0.",
    "anyOf": [_ENVELOPE, _FLAT, {"title": "Several", "type": "array", "items": {"anyOf": [_ENVELOPE, _FLAT]}}],
    "examples": [{"ts": 1_795_233_602_120, "m": {"temperature": 21.4, "mode": "eco"}, "u": {"temperature": "celsius"}}],
}


@dataclass(frozen=True, slots=True)
class NativeTopicDefinition:
    """A topic below `devices/<deviceId>/`. `payload`: a type or a JSON Schema. `text`: words that may be sent without JSON."""

    name: str
    by_device: bool
    qos: int
    summary: str
    payload: type[msgspec.Struct] | Mapping[str, Any] | None = None
    text: tuple[str, ...] = ()
    retain: bool = False


TOPICS = (
    NativeTopicDefinition(
        "status", True, 1, "Whether the device is connected; also its will.", text=("online", "offline"), retain=True
    ),
    NativeTopicDefinition("state", True, 1, "What the relay does, on every change.", StatePayload, ("ON", "OFF"), retain=True),
    NativeTopicDefinition("telemetry", True, 1, "What the device measures. QoS 0 or 1.", TELEMETRY_SCHEMA),
    NativeTopicDefinition("cmd", False, 1, "A command; it expires with its deadline.", CommandPayload),
    NativeTopicDefinition("result", True, 1, "The answer to a command.", ResultPayload),
    NativeTopicDefinition(
        "sched", False, 1, "The device's copy of the schedules; under 200 bytes.", SchedulePlanPayload, retain=True
    ),
    NativeTopicDefinition("sched/rev", True, 1, "Which plan the device has stored.", PlanRevisionPayload, retain=True),
    NativeTopicDefinition("time/get", True, 0, "Asks for the time; any payload.", {}),
    NativeTopicDefinition("time", False, 0, "The answer to `time/get`.", TimePayload),
    NativeTopicDefinition("hello", True, 1, "Sent after connecting.", HelloPayload),
)
