"""ESPHome's MQTT component with `topic_prefix: devices/<id>`: `status`, `switch/relay/state`, `sensor/<name>/state`.

ESPHome answers a command with nothing but the new state, so a command counts as done when the relay reports what was asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from adapters.mqtt.profiles import readings
from domain.devices.codec import Downlink, Order, PlanRow, RelayReport, Report, StatusReport, TelemetryReport, Unreadable

_WORDS = frozenset({"ON", "OFF", "TOGGLE"})


def encode(device_id: str, order: Order, now_ms: int) -> Sequence[Downlink]:
    if order.cmd not in _WORDS:
        return ()
    expiry_s = max(1, -(-(order.expires_ms - now_ms) // 1000))
    return (Downlink("switch/relay/command", order.cmd.encode(), expiry_s=expiry_s),)


def decode(topic: str, payload: bytes, retain: bool) -> Sequence[Report]:
    word = payload.strip().decode("utf-8", "replace")
    if topic == "status":
        return (StatusReport(word == "online"),)
    if topic == "switch/relay/state":
        return (RelayReport(word == "ON"),) if word in ("ON", "OFF") else (Unreadable("MALFORMED", "a switch is ON or OFF"),)
    parts = topic.split("/")
    if len(parts) == 3 and parts[2] == "state":
        return _reading(parts[0], parts[1], word)
    return () if parts[0] in ("debug", "switch") else (Unreadable("UNKNOWN_TOPIC", f"nothing is expected on {topic[:64]!r}"),)


def listens(topic_filter: str) -> bool:
    return topic_filter in ("switch/relay/command", "switch/+/command", "#")


def greeting() -> Sequence[Downlink]:
    return ()  # its states are retained and come again by themselves


def plan(device_id: str, revision: int, rows: Sequence[PlanRow], now_ms: int) -> Sequence[Downlink]:
    return ()  # its schedules are part of its YAML


def _reading(kind: str, name: str, word: str) -> Sequence[Report]:
    if kind == "binary_sensor":
        return (TelemetryReport(readings.payload({name: word == "ON"})),)
    if kind == "text_sensor":
        return (TelemetryReport(readings.payload({name: word[:256]})),)
    if kind != "sensor":
        return ()
    try:
        number = float(word)
    except ValueError:
        return (Unreadable("MALFORMED", f"sensor {name[:64]!r} is not a number"),)
    if number != number or number in (float("inf"), float("-inf")):
        return ()  # `nan` is how ESPHome says that it has no value yet
    return (TelemetryReport(readings.payload({name: number})),)
