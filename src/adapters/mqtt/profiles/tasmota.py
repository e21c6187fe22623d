"""Tasmota with FullTopic `devices/<id>/%prefix%/`: `stat/…` and `tele/…` up, `cmnd/…` down.

Tasmota has no command ids, so a command is sent as a Backlog whose last step publishes the execution's id on `stat/ACK`: when
the id arrives, the steps before it have run. Tasmota publishes its relay only on a change, so it is queried when it connects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from adapters.mqtt.profiles import conversion
from adapters.mqtt.profiles.conversion import FuturePlanEdge, upcoming_edges
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
    UnreadableMessage,
)

_COMMANDS = {"ON": "Power1 ON", "OFF": "Power1 OFF", "TOGGLE": "Power1 TOGGLE", "STATUS": "State"}
_SKIPPED_FIELDS = frozenset({"Time", "TempUnit", "PressureUnit", "SpeedUnit"})
_SKIPPED_NAMES = frozenset({"Id", "ID", "TotalStartTime"})
"""Identifiers and instants, which are no measurements."""
_TEMPERATURES = ("Temperature", "DewPoint", "HeatIndex", "FeelsLike", "ObjectTemperature", "AmbientTemperature")
_UNIT_FIELDS = {"TempUnit": _TEMPERATURES, "PressureUnit": ("Pressure", "SeaPressure"), "SpeedUnit": ("Speed",)}
_DEGREES = {"C": "°C", "F": "°F"}
_FIXED_UNITS = {
    "ApparentPower": "VA",
    "Current": "A",
    "Frequency": "Hz",
    "Humidity": "%",
    "Illuminance": "lx",
    "Power": "W",
    "ReactivePower": "var",
    "Today": "kWh",
    "Total": "kWh",
    "Voltage": "V",
    "Yesterday": "kWh",
}
_STATE_TOPICS = frozenset({"stat/RESULT", "tele/STATE"})

MAX_SLOTS = 5
PLAN_EXPIRY_S = 30
"""The plan is sent again when the device reconnects, so an older one must expire before that."""

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def encode_command(device_id: str, command: OutboundCommand, now_ms: int) -> Sequence[OutboundMessage]:
    step = _COMMANDS.get(command.cmd) or _custom_command(command)
    if step is None:
        return ()
    backlog = f"{step}; Publish devices/{device_id}/stat/ACK {command.execution_id}"
    return (OutboundMessage("cmnd/Backlog0", backlog.encode(), expiry_s=command.expiry_s(now_ms)),)


def decode(topic: str, payload: bytes, retain: bool) -> Sequence[DeviceReport]:
    if topic == "tele/LWT":
        return (PresenceReport(payload.strip() == b"Online"),)
    if topic in ("stat/POWER", "stat/POWER1"):
        return _decode_power(payload.strip().decode("ascii", "replace"))
    if topic == "stat/ACK":
        return (CommandResultReport(payload.strip().decode("ascii", "replace")[:64], "done"),)
    if topic == "stat/PLAN":
        return _decode_plan_revision(payload.strip())
    if topic == "tele/INFO1":
        return _decode_version(payload)
    if topic in _STATE_TOPICS or topic == "tele/SENSOR":
        return _decode_json(topic, payload)
    if topic.startswith(("stat/", "tele/")):
        return ()  # INFO1, STATUS5 and many others, which the service does not use
    return (UnreadableMessage("UNKNOWN_TOPIC", f"nothing is expected on {topic[:64]!r}"),)


def is_command_subscription(topic_filter: str) -> bool:
    return topic_filter in ("cmnd/#", "#")


def state_queries() -> Sequence[OutboundMessage]:
    return (OutboundMessage("cmnd/STATE", b""),)


def encode_plan(device_id: str, revision: int, rows: Sequence[PlanRow], now_ms: int) -> Sequence[OutboundMessage]:
    """Timers 1 to 10, two for each slot; one Backlog for each slot, because Tasmota accepts about 500 bytes at a time. The first
    step sets the device's time zone to UTC, which the one-time timers need. Timers of past edges are cleared."""
    edges, complete = upcoming_edges(rows, now_ms)
    timers = {2 * edge.slot + (1 if edge.relay else 2): _timer_json(edge) for edge in edges}
    messages = []
    for slot in range(MAX_SLOTS):
        steps = [f"Timer{number} {timers.get(number, '0')}" for number in (2 * slot + 1, 2 * slot + 2)]
        if slot == 0:
            steps = ["Timezone 0", "Timers 1", *steps]
        if slot == MAX_SLOTS - 1 and complete:
            steps.append(f"Publish devices/{device_id}/stat/PLAN {revision}")
        messages.append(OutboundMessage("cmnd/Backlog0", "; ".join(steps).encode(), expiry_s=PLAN_EXPIRY_S))
    return messages


def _timer_json(edge: FuturePlanEdge) -> str:
    """`Days` begins with Sunday. The switch is `Enable` since version 9 and was `Arm` before; Tasmota ignores the other one."""
    day, second = divmod(edge.ts, 86_400)
    days = "".join("1" if index == (day + 4) % 7 else "0" for index in range(7))  # 1970 began on a Thursday
    time = f"{second // 3600:02}:{second % 3600 // 60:02}"
    timer = {"Enable": 1, "Arm": 1, "Mode": 0, "Time": time, "Window": 0, "Days": days, "Repeat": 0, "Output": 1}
    return msgspec.json.encode(timer | {"Action": int(edge.relay)}).decode()


def _decode_plan_revision(word: bytes) -> Sequence[DeviceReport]:
    if not word.isdigit() or len(word) > 15:
        return (UnreadableMessage("MALFORMED", "PLAN is a revision"),)
    return (DevicePlanRevisionReport(int(word)),)


def _decode_version(payload: bytes) -> Sequence[DeviceReport]:
    """`{"Info1": {"Module": "Sonoff Basic", "Version": "14.2.0(tasmota)", …}}`; before version 10 without `Info1` around it."""
    document = _decode_object(payload)
    info = document.get("Info1", document)
    version = info.get("Version") if isinstance(info, dict) else None
    return (HelloReport(version[:64], None),) if isinstance(version, str) else ()


def _custom_command(command: OutboundCommand) -> str | None:
    """A defined command of another name is Tasmota's own command; a string or number is its argument.

    A `;` would start another command without permission, so it is refused."""
    argument = "" if command.params is None else command.params
    if isinstance(argument, bool) or not isinstance(argument, str | int | float):
        return None
    text = f"{command.cmd} {argument}".strip()
    return None if any(sign in text for sign in ";\r\n\0") else text


def _units(document: Mapping[str, Any], values: Iterable[str]) -> dict[str, str]:
    """Tasmota gives the units of temperature, pressure and speed once for the whole message; those of energy are fixed."""
    chosen = {name: document[field] for field, names in _UNIT_FIELDS.items() for name in names if field in document}
    units = {}
    for path in values:
        name = next(part for part in reversed(path.split(".")) if not part.isdigit())
        unit = chosen.get(name, _FIXED_UNITS.get(name))
        if isinstance(unit, str):
            units[path] = _DEGREES.get(unit, unit) if name in _TEMPERATURES else unit
    return units


def _decode_power(word: str) -> Sequence[DeviceReport]:
    return (RelayReport(word == "ON"),) if word in ("ON", "OFF") else (UnreadableMessage("MALFORMED", "POWER is ON or OFF"),)


def _decode_json(topic: str, payload: bytes) -> Sequence[DeviceReport]:
    document = _decode_object(payload)
    if topic == "tele/SENSOR":
        values, dropped = conversion.flatten(document, skip=_SKIPPED_FIELDS, skip_names=_SKIPPED_NAMES, lists=True)
        return conversion.to_reports(values, dropped, _units(document, values))
    word = document.get("POWER1", document.get("POWER"))
    return _decode_power(word) if isinstance(word, str) else ()
