"""The protocol of native firmware: JSON on `state`, `result`, `hello`, `sched/rev`; the wire contract's section 6.

Unknown fields are ignored, so that newer firmware can send more. Fields that decide something are checked: a relay is `ON` or
`OFF`, a result has one of four statuses.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adapters.mqtt.profiles.native_payload_types import (
    CommandPayload,
    HelloPayload,
    PlanRevisionPayload,
    ResultPayload,
    StatePayload,
    TimePayload,
)
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

_encode_json = msgspec.json.Encoder().encode
_decode_state = msgspec.json.Decoder(StatePayload).decode
_decode_result = msgspec.json.Decoder(ResultPayload).decode
_decode_plan = msgspec.json.Decoder(PlanRevisionPayload).decode
_decode_hello = msgspec.json.Decoder(HelloPayload).decode


def encode_command(device_id: str, command: OutboundCommand, now_ms: int) -> Sequence[OutboundMessage]:
    """The deadline is sent twice: as MQTT 5 message expiry for the broker, and as `exp` for the device."""
    message = CommandPayload(id=command.execution_id, cmd=command.cmd, params=command.params, exp=command.expires_ms)
    return (OutboundMessage("cmd", _encode_json(message), expiry_s=command.expiry_s(now_ms)),)


def decode(topic: str, payload: bytes, retain: bool) -> Sequence[DeviceReport]:
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
