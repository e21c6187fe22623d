"""Our own firmware protocol: JSON on `state`, `result`, `hello`, `sched/rev`; the wire contract's section 6.

Lenient in what is only information (unknown fields are passed over, so that newer firmware can say more), strict in what
decides something: a relay is `ON` or `OFF`, a result has one of four words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from domain.devices.codec import (
    Downlink,
    HelloReport,
    Order,
    PlanReport,
    PlanRow,
    RelayReport,
    Report,
    ResultReport,
    StatusReport,
    TimeRequest,
    Unreadable,
)
from domain.schedules.firmware import message

Relay = Literal["ON", "OFF"]
Short = Annotated[str, msgspec.Meta(max_length=64)]
Revision = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _State(msgspec.Struct):
    relay: Relay
    by: Short | None = None
    id: Short | None = None


class _Result(msgspec.Struct):
    id: Short
    status: Literal["ack", "done", "error", "expired"]
    code: Short | None = None
    relay: Relay | None = None
    data: Any = None


class _Plan(msgspec.Struct):
    rev: Revision


class _Hello(msgspec.Struct):
    fw: Short | None = None
    sched: Revision | None = None


_encode = msgspec.json.Encoder().encode
_state = msgspec.json.Decoder(_State).decode
_result = msgspec.json.Decoder(_Result).decode
_plan = msgspec.json.Decoder(_Plan).decode
_hello = msgspec.json.Decoder(_Hello).decode


def encode(device_id: str, order: Order, now_ms: int) -> Sequence[Downlink]:
    """The deadline goes twice: as MQTT 5 message expiry for the broker, as `exp` for the device itself."""
    message = {"id": order.execution_id, "cmd": order.cmd, "params": order.params, "exp": order.expires_ms}
    expiry_s = max(1, -(-(order.expires_ms - now_ms) // 1000))
    return (Downlink("cmd", _encode(message), expiry_s=expiry_s),)


def decode(topic: str, payload: bytes, retain: bool) -> Sequence[Report]:
    read = _READERS.get(topic)
    if read is None:
        return (Unreadable("UNKNOWN_TOPIC", f"nothing is expected on {topic[:64]!r}"),)
    try:
        return (read(payload),)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return (Unreadable("MALFORMED", f"{topic}: {error}"),)


def listens(topic_filter: str) -> bool:
    return topic_filter in ("cmd", "#", "+")


def greeting() -> Sequence[Downlink]:
    return ()


def plan(device_id: str, revision: int, rows: Sequence[PlanRow], now_ms: int) -> Sequence[Downlink]:
    return (Downlink("sched", message(revision, rows), retain=True),)


def time(now_ms: int) -> Downlink:
    return Downlink("time", _encode({"t": now_ms}), qos=0)


def _read_status(payload: bytes) -> Report:
    word = payload.strip().lower()
    if word in (b"online", b"offline"):
        return StatusReport(word == b"online")
    return Unreadable("MALFORMED", "status is `online` or `offline`")


def _read_state(payload: bytes) -> Report:
    plain = payload.strip().upper()
    if plain in (b"ON", b"OFF"):
        return RelayReport(plain == b"ON")
    state = _state(payload)
    return RelayReport(state.relay == "ON", state.id, state.by)


def _read_result(payload: bytes) -> Report:
    result = _result(payload)
    relay = None if result.relay is None else result.relay == "ON"
    return ResultReport(result.id, result.status, result.code, relay, result.data)


def _read_plan(payload: bytes) -> Report:
    return PlanReport(_plan(payload).rev)


def _read_hello(payload: bytes) -> Report:
    hello = _hello(payload)
    return HelloReport(hello.fw, hello.sched)


def _read_time(payload: bytes) -> Report:
    return TimeRequest()


_READERS = {
    "status": _read_status,
    "state": _read_state,
    "result": _read_result,
    "sched/rev": _read_plan,
    "hello": _read_hello,
    "time/get": _read_time,
}
