"""ESPHome's MQTT component with `topic_prefix: devices/<id>`: `status`, `switch/relay/state`, `sensor/<name>/state`.

ESPHome publishes a switch only when it has changed, so a command for the state that it already has would get no answer. The YAML
that the service gives therefore has one automation: asked on `ask/relay/command` with a command's id, the board says on
`answer/relay` what its relay does. A board without it (an older file) confirms a command by the state that it publishes after it;
if it publishes none, nobody knows, and the command times out. A word from before the command confirms nothing.

Everything else is a reading: sensors under their name alone, other components with theirs before it, as in
`light.lamp.brightness`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adapters.mqtt.profiles import conversion
from domain.devices.messages import (
    CommandResultReport,
    DeviceReport,
    OutboundCommand,
    OutboundMessage,
    PlanRow,
    PresenceReport,
    RelayReport,
    UnreadableMessage,
)

_COMMANDS = frozenset({"ON", "OFF", "TOGGLE"})
_BARE = frozenset({"sensor", "binary_sensor", "text_sensor"})
_TEXTS = frozenset({"text_sensor", "select", "text"})
IGNORED_TOPICS: Mapping[str, str] = {"debug": "log lines; `log_topic: null` turns them off"}


def encode_command(device_id: str, command: OutboundCommand, now_ms: int, memory: None = None) -> Sequence[OutboundMessage]:
    if command.cmd not in _COMMANDS:
        return ()
    expiry_s = command.expiry_s(now_ms)
    return (
        OutboundMessage("switch/relay/command", command.cmd.encode(), expiry_s=expiry_s),
        OutboundMessage("ask/relay/command", command.execution_id.encode(), expiry_s=expiry_s, is_optional=True),
    )


def decode(topic: str, payload: bytes, retain: bool, memory: None = None, at_ms: int = 0) -> Sequence[DeviceReport]:
    if topic in IGNORED_TOPICS:
        return ()
    word = payload.strip().decode("utf-8", "replace")
    if topic == "status":
        return _decode_presence(word)
    if topic == "switch/relay/state":
        if word in ("ON", "OFF"):
            return (RelayReport(word == "ON"),)
        return (UnreadableMessage("MALFORMED", "a switch is ON or OFF", metric="relay"),)
    if topic == "answer/relay":
        return _decode_answer(word)
    kind, *names = topic.split("/")
    if len(names) < 2 or names[-1] != "state":
        return (UnreadableMessage("UNKNOWN_TOPIC", f"nothing is expected on {topic[:64]!r}"),)
    return _decode_reading(kind, names[:-1], payload)


def is_command_subscription(topic_filter: str) -> bool:
    return topic_filter in ("switch/relay/command", "switch/+/command", "#")


def state_queries() -> Sequence[OutboundMessage]:
    return ()  # its states are retained, so the broker sends them again


def encode_plan(device_id: str, revision: int, rows: Sequence[PlanRow], now_ms: int) -> Sequence[OutboundMessage]:
    return ()  # its schedules are part of its YAML


def _decode_presence(word: str) -> Sequence[DeviceReport]:
    if word in ("online", "offline"):
        return (PresenceReport(word == "online"),)
    return (UnreadableMessage("MALFORMED", "status is `online` or `offline`"),)


def _decode_answer(word: str) -> Sequence[DeviceReport]:
    """`exe_… ON`: the id of the command after which it was asked, and what the relay does."""
    execution_id, _, state = word.partition(" ")
    if state not in ("ON", "OFF"):
        return (UnreadableMessage("MALFORMED", "an answer is an id and ON or OFF", metric="relay"),)
    return (CommandResultReport(execution_id[:64], "done", relay=state == "ON"),)


def _decode_reading(kind: str, names: Sequence[str], payload: bytes) -> Sequence[DeviceReport]:
    """`fan/ceiling/speed_level/state` is the metric `fan.ceiling.speed_level`; a light's or an event's JSON is flattened. `nan`
    means that a sensor has no value yet."""
    name = ".".join(names if kind in _BARE else (kind, *names))
    if kind == "sensor" and not conversion.is_number(payload):
        return (UnreadableMessage("MALFORMED", "a sensor is a number", metric=name[:64]),)
    return conversion.read_plain(name, payload, is_text=kind in _TEXTS)
