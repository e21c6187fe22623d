"""The protocol of native firmware, section 6 of the wire contract: JSON on `state`, `result`, `hello`, `sched/rev`. The AsyncAPI
document shows the same payload types, the topics and the JSON Schema of telemetry.

Unknown fields are ignored, so that newer firmware can send more. Fields that decide something are checked: a relay is `ON` or
`OFF`, a result has one of four statuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from domain.devices.messages import (
    CommandResultReport,
    DevicePlanRevisionReport,
    DeviceReport,
    HelloReport,
    OutboundCommand,
    OutboundMessage,
    PlanRow,
    PresenceReport,
    RelayReport,
    TimeRequest,
    UnreadableMessage,
)
from domain.schedules.device_plan import encode_sched_payload
from domain.telemetry.reference_parser import MAX_NAME_LENGTH, MAX_TEXT_LENGTH

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


_encode_json = msgspec.json.Encoder().encode
_decode_state = msgspec.json.Decoder(StatePayload).decode
_decode_result = msgspec.json.Decoder(ResultPayload).decode
_decode_plan = msgspec.json.Decoder(PlanRevisionPayload).decode
_decode_hello = msgspec.json.Decoder(HelloPayload).decode


def encode_command(device_id: str, command: OutboundCommand, now_ms: int, memory: None = None) -> Sequence[OutboundMessage]:
    """The deadline is sent twice: as MQTT 5 message expiry for the broker, and as `exp` for the device."""
    message = CommandPayload(id=command.execution_id, cmd=command.cmd, params=command.params, exp=command.expires_ms)
    return (OutboundMessage("cmd", _encode_json(message), expiry_s=command.expiry_s(now_ms)),)


def decode(topic: str, payload: bytes, retain: bool, memory: None = None, at_ms: int = 0) -> Sequence[DeviceReport]:
    read = _DECODERS.get(topic)
    if read is None:
        return (UnreadableMessage("UNKNOWN_TOPIC", f"nothing is expected on {topic[:64]!r}"),)
    return (read(payload),)


def is_command_subscription(topic_filter: str) -> bool:
    return topic_filter in ("cmd", "#", "+")


def state_queries() -> Sequence[OutboundMessage]:
    return ()


def encode_plan(device_id: str, revision: int, rows: Sequence[PlanRow], now_ms: int) -> Sequence[OutboundMessage]:
    return (OutboundMessage("sched", encode_sched_payload(revision, rows), retain=True),)


def encode_time(now_ms: int) -> OutboundMessage:
    return OutboundMessage("time", _encode_json(TimePayload(t=now_ms)), qos=0)


def _status_report(payload: bytes) -> DeviceReport:
    word = payload.strip().lower()
    if word in (b"online", b"offline"):
        return PresenceReport(word == b"online")
    return UnreadableMessage("MALFORMED", "status is `online` or `offline`")


def _state_report(payload: bytes) -> DeviceReport:
    plain = payload.strip().upper()
    if plain in (b"ON", b"OFF"):
        return RelayReport(plain == b"ON")
    state = _decode_state(payload)
    return RelayReport(state.relay == "ON", state.id, state.by)


def _result_report(payload: bytes) -> DeviceReport:
    result = _decode_result(payload)
    relay = None if result.relay is None else result.relay == "ON"
    return CommandResultReport(result.id, result.status, result.code, relay, result.data)


def _plan_report(payload: bytes) -> DeviceReport:
    return DevicePlanRevisionReport(_decode_plan(payload).rev)


def _hello_report(payload: bytes) -> DeviceReport:
    hello = _decode_hello(payload)
    return HelloReport(hello.fw, hello.sched)


def _time_request(payload: bytes) -> DeviceReport:
    return TimeRequest()


_DECODERS = {
    "status": _status_report,
    "state": _state_report,
    "result": _result_report,
    "sched/rev": _plan_report,
    "hello": _hello_report,
    "time/get": _time_request,
}


_VALUE = {"type": ["number", "boolean", "string"], "maxLength": MAX_TEXT_LENGTH}
_UNITS = {"type": "object", "description": "Units by metric."}
_TIME = {"type": "integer", "description": "Unix milliseconds, or ten digits of Unix seconds; without it, the arrival counts."}
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
