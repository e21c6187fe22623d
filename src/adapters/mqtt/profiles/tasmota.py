"""Tasmota with FullTopic `devices/<id>/%prefix%/`: `stat/…` and `tele/…` up, `cmnd/…` down.

Tasmota has no ids of its own, so a command goes as a Backlog whose last step publishes the execution's id on `stat/ACK`: when
the id comes back, the steps before it have run. It publishes its relay only when that changes, so it is asked on coming online.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from adapters.mqtt.profiles import readings
from adapters.mqtt.profiles.edges import PlanEdge, to_come
from domain.devices.codec import (
    Downlink,
    Order,
    PlanReport,
    PlanRow,
    RelayReport,
    Report,
    ResultReport,
    StatusReport,
    TelemetryReport,
    Unreadable,
)

_POWER = {"ON": "Power1 ON", "OFF": "Power1 OFF", "TOGGLE": "Power1 TOGGLE", "STATUS": "State"}
_NOT_READINGS = frozenset({"Time", "TempUnit", "PressureUnit", "SpeedUnit"})
_STATE_TOPICS = frozenset({"stat/RESULT", "tele/STATE"})

SLOTS = 5
PLAN_EXPIRY_S = 30
"""A plan is told anew when the device is back; an old one must not reach it then."""

_object = msgspec.json.Decoder(dict[str, Any]).decode


def encode(device_id: str, order: Order, now_ms: int) -> Sequence[Downlink]:
    step = _POWER.get(order.cmd) or _custom(order)
    if step is None:
        return ()
    expiry_s = max(1, -(-(order.expires_ms - now_ms) // 1000))
    backlog = f"{step}; Publish devices/{device_id}/stat/ACK {order.execution_id}"
    return (Downlink("cmnd/Backlog0", backlog.encode(), expiry_s=expiry_s),)


def decode(topic: str, payload: bytes, retain: bool) -> Sequence[Report]:
    if topic == "tele/LWT":
        return (StatusReport(payload.strip() == b"Online"),)
    if topic in ("stat/POWER", "stat/POWER1"):
        return _power(payload.strip().decode("ascii", "replace"))
    if topic == "stat/ACK":
        return (ResultReport(payload.strip().decode("ascii", "replace")[:64], "done"),)
    if topic == "stat/PLAN":
        return _held(payload.strip())
    if topic in _STATE_TOPICS or topic == "tele/SENSOR":
        return _document(topic, payload)
    if topic.startswith(("stat/", "tele/")):
        return ()  # INFO1, STATUS5 and many more: true, but nothing of ours
    return (Unreadable("UNKNOWN_TOPIC", f"nothing is expected on {topic[:64]!r}"),)


def listens(topic_filter: str) -> bool:
    return topic_filter in ("cmnd/#", "#")


def greeting() -> Sequence[Downlink]:
    return (Downlink("cmnd/STATE", b""),)


def plan(device_id: str, revision: int, rows: Sequence[PlanRow], now_ms: int) -> Sequence[Downlink]:
    """Timers 1 to 10, two a slot; one Backlog a slot, because Tasmota takes some 500 bytes at a time. They are for one run, so
    they need the device's clock on UTC, which the first step sees to. Edges that are past are cleared."""
    edges, complete = to_come(rows, now_ms)
    timers = {2 * edge.slot + (1 if edge.relay else 2): _timer(edge) for edge in edges}
    messages = []
    for slot in range(SLOTS):
        steps = [f"Timer{number} {timers.get(number, '0')}" for number in (2 * slot + 1, 2 * slot + 2)]
        if slot == 0:
            steps = ["Timezone 0", "Timers 1", *steps]
        if slot == SLOTS - 1 and complete:
            steps.append(f"Publish devices/{device_id}/stat/PLAN {revision}")
        messages.append(Downlink("cmnd/Backlog0", "; ".join(steps).encode(), expiry_s=PLAN_EXPIRY_S))
    return messages


def _timer(edge: PlanEdge) -> str:
    """`Days` begins with Sunday. What arms is called `Enable` since version 9 and was `Arm` before; the other is passed over."""
    day, second = divmod(edge.ts, 86_400)
    days = "".join("1" if index == (day + 4) % 7 else "0" for index in range(7))  # 1970 began on a Thursday
    time = f"{second // 3600:02}:{second % 3600 // 60:02}"
    timer = {"Enable": 1, "Arm": 1, "Mode": 0, "Time": time, "Window": 0, "Days": days, "Repeat": 0, "Output": 1}
    return msgspec.json.encode(timer | {"Action": int(edge.relay)}).decode()


def _held(word: bytes) -> Sequence[Report]:
    if not word.isdigit() or len(word) > 15:
        return (Unreadable("MALFORMED", "PLAN is a revision"),)
    return (PlanReport(int(word)),)


def _custom(order: Order) -> str | None:
    """A defined command of another name is Tasmota's own command; a string or number is its argument.

    A `;` would end the step and start another command that nobody was granted, so it is not let through."""
    argument = "" if order.params is None else order.params
    if isinstance(argument, bool) or not isinstance(argument, str | int | float):
        return None
    text = f"{order.cmd} {argument}".strip()
    return None if any(sign in text for sign in ";\r\n\0") else text


def _power(word: str) -> Sequence[Report]:
    return (RelayReport(word == "ON"),) if word in ("ON", "OFF") else (Unreadable("MALFORMED", "POWER is ON or OFF"),)


def _document(topic: str, payload: bytes) -> Sequence[Report]:
    try:
        document = _object(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return (Unreadable("MALFORMED", f"{topic}: {error}"),)
    if topic == "tele/SENSOR":
        values = readings.flatten(document, skip=_NOT_READINGS)
        return (TelemetryReport(readings.payload(values)),) if values else ()
    word = document.get("POWER1", document.get("POWER"))
    return _power(word) if isinstance(word, str) else ()
