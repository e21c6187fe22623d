"""ESPHome's MQTT component with `topic_prefix: devices/<id>`: `status`, `switch/relay/state`, `sensor/<name>/state`.

ESPHome answers a command only with the new state, so a command is done when the relay reports the requested state.
"""

from __future__ import annotations

from collections.abc import Sequence

from adapters.mqtt.profiles import conversion
from domain.devices.messages import (
    DeviceReport,
    OutboundCommand,
    OutboundMessage,
    PlanRow,
    PresenceReport,
    RelayReport,
    StockFirmwareTelemetryReport,
    UnreadableMessage,
)

_COMMANDS = frozenset({"ON", "OFF", "TOGGLE"})


def encode_command(device_id: str, command: OutboundCommand, now_ms: int) -> Sequence[OutboundMessage]:
    if command.cmd not in _COMMANDS:
        return ()
    return (OutboundMessage("switch/relay/command", command.cmd.encode(), expiry_s=command.expiry_s(now_ms)),)


def decode(topic: str, payload: bytes, retain: bool) -> Sequence[DeviceReport]:
    word = payload.strip().decode("utf-8", "replace")
    if topic == "status":
        return (PresenceReport(word == "online"),)
    if topic == "switch/relay/state":
        return (
            (RelayReport(word == "ON"),) if word in ("ON", "OFF") else (UnreadableMessage("MALFORMED", "a switch is ON or OFF"),)
        )
    parts = topic.split("/")
    if len(parts) == 3 and parts[2] == "state":
        return _decode_reading(parts[0], parts[1], word)
    return (
        () if parts[0] in ("debug", "switch") else (UnreadableMessage("UNKNOWN_TOPIC", f"nothing is expected on {topic[:64]!r}"),)
    )


def is_command_subscription(topic_filter: str) -> bool:
    return topic_filter in ("switch/relay/command", "switch/+/command", "#")


def state_queries() -> Sequence[OutboundMessage]:
    return ()  # its states are retained, so the broker sends them again


def encode_plan(device_id: str, revision: int, rows: Sequence[PlanRow], now_ms: int) -> Sequence[OutboundMessage]:
    return ()  # its schedules are part of its YAML


def _decode_reading(kind: str, name: str, word: str) -> Sequence[DeviceReport]:
    if kind == "binary_sensor":
        return (StockFirmwareTelemetryReport(conversion.encode_telemetry({name: word == "ON"})),)
    if kind == "text_sensor":
        return (StockFirmwareTelemetryReport(conversion.encode_telemetry({name: word[:256]})),)
    if kind != "sensor":
        return ()
    try:
        number = float(word)
    except ValueError:
        return (UnreadableMessage("MALFORMED", f"sensor {name[:64]!r} is not a number"),)
    if number != number or number in (float("inf"), float("-inf")):
        return ()  # ESPHome sends `nan` while it has no value
    return (StockFirmwareTelemetryReport(conversion.encode_telemetry({name: number})),)
