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

from adapters.mqtt.profiles import conversion
from domain.devices.channels import MAX_CHANNEL, RELAY_CHANNEL, ChannelKind, ChannelState, DeclaredChannel, InputAction
from domain.devices.messages import (
    ChannelReport,
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
from domain.kernel.domain_event import JsonObject
from domain.schedules.device_plan import encode_sched_payload
from domain.telemetry.reference_parser import MAX_NAME_LENGTH, MAX_TEXT_LENGTH

RelayState = Literal["ON", "OFF"]
ChannelKindName = Literal["RELAY", "LEVEL", "COLOR", "COVER", "CLIMATE", "INPUT"]
ChannelNumber = Annotated[int, msgspec.Meta(ge=1, le=MAX_CHANNEL, description="Without it: 1, the relay.")]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
ShortText = Annotated[str, msgspec.Meta(max_length=64)]
Revision = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
UnixMs = Annotated[int, msgspec.Meta(description="Unix milliseconds.")]


class StatePayload(msgspec.Struct):
    """What the relay, or the channel, does now: `relay` of what is on or off, and what else its kind has: `level` of LEVEL and
    COLOR, `position` of a COVER (0 is closed, 100 open), `celsius` (the target) of CLIMATE. `action`: a press of an INPUT (never
    retained), or the state of a contact."""

    relay: RelayState | None = None
    ch: ChannelNumber = RELAY_CHANNEL
    level: Percent | None = None
    color: Annotated[str, msgspec.Meta(pattern="^#[0-9a-fA-F]{6}$")] | None = None
    kelvin: Annotated[int, msgspec.Meta(ge=1000, le=12_000)] | None = None
    position: Percent | None = None
    moving: Literal["OPENING", "CLOSING"] | None = None
    celsius: Annotated[float, msgspec.Meta(ge=-50, le=100)] | None = None
    mode: Literal["OFF", "HEAT", "COOL", "AUTO", "DRY", "FAN_ONLY"] | None = None
    action: Literal["SINGLE", "DOUBLE", "TRIPLE", "LONG", "ON", "OFF"] | None = None
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
    """Sent after connecting: firmware version, the revision of the stored plan, and the channels where there is more, or another
    one, than one relay."""

    fw: ShortText | None = None
    sched: Revision | None = None
    ch: (
        Annotated[list[ChannelKindName], msgspec.Meta(max_length=MAX_CHANNEL, description="The kinds of channel 1, 2, …")] | None
    ) = None
    names: Annotated[list[ShortText], msgspec.Meta(max_length=MAX_CHANNEL, description="Their names.")] | None = None


class CommandPayload(msgspec.Struct):
    """A command. The device does not run an id a second time, nor anything after `exp`."""

    id: str
    cmd: str
    params: Any
    exp: UnixMs
    ch: ChannelNumber | msgspec.UnsetType = msgspec.UNSET


class SchedulePlanPayload(msgspec.Struct):
    """The schedules that the device runs while it is offline."""

    rev: Revision
    s: Annotated[
        list[Annotated[list[int | bool], msgspec.Meta(min_length=4, max_length=5)]],
        msgspec.Meta(
            max_length=5, description="Slot, onTs, offTs (Unix seconds), enabled; a fifth number names a channel other than 1."
        ),
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
    channel = msgspec.UNSET if command.channel == RELAY_CHANNEL else command.channel
    message = CommandPayload(id=command.execution_id, cmd=command.cmd, params=command.params, exp=command.expires_ms, ch=channel)
    return (OutboundMessage("cmd", _encode_json(message), expiry_s=command.expiry_s(now_ms)),)


def decode(topic: str, payload: bytes, retain: bool, memory: None = None, at_ms: int = 0) -> Sequence[DeviceReport]:
    if topic == "state":
        return _state_reports(payload, retain, at_ms)
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


def _state_reports(payload: bytes, retain: bool, at_ms: int) -> Sequence[DeviceReport]:
    plain = payload.strip().upper()
    if plain in (b"ON", b"OFF"):
        return (RelayReport(plain == b"ON"),)
    state = _decode_state(payload)
    reports: list[DeviceReport] = []
    if state.relay is not None:
        reports.append(RelayReport(state.relay == "ON", state.id, state.by, state.ch))
    level = state.level if state.position is None else state.position
    details: JsonObject = {
        "color": None if state.color is None else state.color.lower(),
        "kelvin": state.kelvin,
        "targetCelsius": state.celsius,
        "mode": state.mode,
    }
    named: JsonObject = {name: value for name, value in details.items() if value is not None}
    if state.position is not None or state.moving is not None:
        named["moving"] = state.moving
    if state.color is not None or state.kelvin is not None:  # the one or the other
        named |= {"color": details["color"], "kelvin": details["kelvin"]}
    if level is not None or named:
        reports.append(ChannelReport(state.ch, ChannelState(level=level, details=named), state.id, state.by))
    if state.action is not None:
        action, metric = InputAction(state.action), f"input{state.ch}"
        reports += conversion.press_reports(state.ch, metric, action, retain, at_ms)
        if action.is_contact:
            reports += conversion.read_plain(metric, action.value.encode(), is_text=True)
    if not reports:
        return (UnreadableMessage("MALFORMED", "a state has `relay`, or what else its channel has"),)
    return reports


def _result_report(payload: bytes) -> DeviceReport:
    result = _decode_result(payload)
    relay = None if result.relay is None else result.relay == "ON"
    return CommandResultReport(result.id, result.status, result.code, relay, result.data)


def _plan_report(payload: bytes) -> DeviceReport:
    return DevicePlanRevisionReport(_decode_plan(payload).rev)


def _hello_report(payload: bytes) -> DeviceReport:
    hello = _decode_hello(payload)
    if hello.ch is None:
        return HelloReport(hello.fw, hello.sched)
    names = [*(hello.names or ()), *[""] * len(hello.ch)]
    declared = tuple(
        DeclaredChannel(number, ChannelKind(kind), "".join(filter(str.isprintable, name)).strip() or None)
        for number, (kind, name) in enumerate(zip(hello.ch, names, strict=False), RELAY_CHANNEL)
    )
    return HelloReport(hello.fw, hello.sched, declared)


def _time_request(payload: bytes) -> DeviceReport:
    return TimeRequest()


_DECODERS = {
    "status": _status_report,
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
    NativeTopicDefinition(
        "state", True, 1, "What the relay or a channel does, on every change.", StatePayload, ("ON", "OFF"), retain=True
    ),
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
