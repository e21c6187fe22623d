"""The topics of native firmware and what is on them; the wire contract's section 6.

`native.py` decodes and encodes with the same types; the AsyncAPI document shows their JSON Schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from domain.telemetry.engine.payload_parser import MAX_NAME_LENGTH, MAX_TEXT_LENGTH

RelayState = Literal["ON", "OFF"]
ShortText = Annotated[str, msgspec.Meta(max_length=64)]
Revision = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
UnixMs = Annotated[int, msgspec.Meta(description="Unix milliseconds.")]


class StatePayload(msgspec.Struct):
    """What the relay does now."""

    relay: RelayState
    by: Annotated[ShortText | None, msgspec.Meta(description="The cause: `cmd`, `button`, `sched`.")] = None
    id: Annotated[ShortText | None, msgspec.Meta(description="With `cmd`: the id of the command.")] = None


class ResultPayload(msgspec.Struct):
    """The device's answer to a command: `ack` when it has it, then one of the others."""

    id: ShortText
    status: Literal["ack", "done", "error", "expired"]
    code: ShortText | None = None
    relay: RelayState | None = None
    data: Any = None


class PlanRevisionPayload(msgspec.Struct):
    """Which plan the device has stored."""

    rev: Revision


class HelloPayload(msgspec.Struct):
    """Sent after connecting: firmware version, and the revision of the stored plan."""

    fw: ShortText | None = None
    sched: Revision | None = None


class CommandPayload(msgspec.Struct):
    """A command. The device does not run an id a second time, nor anything after `exp`."""

    id: str
    cmd: str
    params: Any
    exp: UnixMs


class SchedulePlanPayload(msgspec.Struct):
    """The schedules that the device runs while it is offline."""

    rev: Revision
    s: Annotated[
        list[Annotated[list[int | bool], msgspec.Meta(min_length=4, max_length=4)]],
        msgspec.Meta(max_length=5, description="Slot, onTs, offTs (Unix seconds), enabled."),
    ]


class TimePayload(msgspec.Struct):
    """The service's time."""

    t: UnixMs


_VALUE = {"type": ["number", "boolean", "string"], "maxLength": MAX_TEXT_LENGTH}
_UNITS = {"type": "object", "description": "Units by metric."}
_TIME = {"type": "integer", "description": "Unix milliseconds; without it, the arrival counts."}
_NAMES = {"minLength": 1, "maxLength": MAX_NAME_LENGTH}
_ENVELOPE = {
    "title": "Readings under m",
    "type": "object",
    "required": ["m"],
    "properties": {
        "ts": _TIME,
        "m": {"type": "object", "propertyNames": _NAMES, "additionalProperties": _VALUE},
        "u": _UNITS,
    },
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
class NativeTopic:
    """A topic below `devices/<deviceId>/`. `payload`: a type or a JSON Schema. `text`: words that may be sent without JSON."""

    name: str
    by_device: bool
    qos: int
    summary: str
    payload: type[msgspec.Struct] | Mapping[str, Any] | None = None
    text: tuple[str, ...] = ()
    retain: bool = False


TOPICS = (
    NativeTopic("status", True, 1, "Whether the device is connected; also its will.", text=("online", "offline"), retain=True),
    NativeTopic("state", True, 1, "What the relay does, on every change.", StatePayload, ("ON", "OFF"), retain=True),
    NativeTopic("telemetry", True, 1, "What the device measures. QoS 0 or 1.", TELEMETRY_SCHEMA),
    NativeTopic("cmd", False, 1, "A command; it expires with its deadline.", CommandPayload),
    NativeTopic("result", True, 1, "The answer to a command.", ResultPayload),
    NativeTopic("sched", False, 1, "The device's copy of the schedules; under 200 bytes.", SchedulePlanPayload, retain=True),
    NativeTopic("sched/rev", True, 1, "Which plan the device has stored.", PlanRevisionPayload, retain=True),
    NativeTopic("time/get", True, 0, "Asks for the time; any payload.", {}),
    NativeTopic("time", False, 0, "The answer to `time/get`.", TimePayload),
    NativeTopic("hello", True, 1, "Sent after connecting.", HelloPayload),
)
