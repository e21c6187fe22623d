"""ESPHome's MQTT component with `topic_prefix: devices/<id>`: `status`, `switch/relay/state`, `sensor/<name>/state`.

The switch named `relay` is the relay; other components are channels too (`esphome_channels.py`).

ESPHome publishes a switch only when it has changed, so a command for the state that it already has would get no answer. The YAML
that the service gives therefore has automations: asked on `ask/relay/command` with a command's id, the board says on
`answer/relay` what its relay does; asked on `ask/switch/command` with an id and the name of another switch, it says so on
`answer/switch`. A board without them (an older file) confirms a command by the state that it publishes after it; if it publishes
none, nobody knows, and the command times out. A word from before the command confirms nothing.

Everything is a reading too: sensors under their name alone, other components with theirs before it: `light.lamp.brightness`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from adapters.mqtt.profiles import conversion
from adapters.mqtt.profiles.esphome_channels import COMMANDED, EspHomeState, channel_reports, command_messages, read_words
from domain.devices.channels import RELAY_CHANNEL, ChannelKind
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

RELAY = "switch/relay"
_SWITCHES = frozenset({"ON", "OFF", "TOGGLE"})
_BARE = frozenset({"sensor", "binary_sensor", "text_sensor"})
_TEXTS = frozenset({"text_sensor", "select", "text"})
_COMMAND_FILTER = re.compile(rf"(?:{'|'.join(COMMANDED)})/[^/]+/(?:[^/]+/)?command")
IGNORED_TOPICS: Mapping[str, str] = {"debug": "log lines; `log_topic: null` turns them off"}


def encode_command(
    device_id: str, command: OutboundCommand, now_ms: int, memory: EspHomeState | None = None
) -> Sequence[OutboundMessage]:
    component = command.component
    if component is None and command.channel == RELAY_CHANNEL and command.kind is ChannelKind.RELAY:
        component = RELAY
    if component is None:
        return ()  # it has never said what this channel is
    expiry_s = command.expiry_s(now_ms)
    messages = [OutboundMessage(topic, payload, expiry_s=expiry_s) for topic, payload in command_messages(command, component)]
    kind, _, name = component.partition("/")
    if messages and kind == "switch":
        question = ("relay", command.execution_id) if component == RELAY else ("switch", f"{command.execution_id} {name}")
        messages.append(OutboundMessage(f"ask/{question[0]}/command", question[1].encode(), expiry_s=expiry_s, is_optional=True))
    elif messages and memory is not None and command.cmd not in _SWITCHES:
        memory.remember(command, component)
    return messages


def decode(
    topic: str, payload: bytes, retain: bool, memory: EspHomeState | None = None, at_ms: int = 0
) -> Sequence[DeviceReport]:
    if topic in IGNORED_TOPICS:
        return ()
    word = payload.strip().decode("utf-8", "replace")
    if topic == "status":
        return _decode_presence(word)
    if topic == f"{RELAY}/state":
        if word in ("ON", "OFF"):
            return (RelayReport(word == "ON"),)
        return (UnreadableMessage("MALFORMED", "a switch is ON or OFF", metric="relay"),)
    if topic in ("answer/relay", "answer/switch"):
        return _decode_answer(word)
    kind, *names = topic.split("/")
    if len(names) < 2 or names[-1] != "state":
        return (UnreadableMessage("UNKNOWN_TOPIC", f"nothing is expected on {topic[:64]!r}"),)
    message = read_words(f"{kind}/{names[0]}", "/".join(names[1:-1]), payload)
    confirmed = [] if memory is None else memory.confirmed(message, at_ms)
    return [*channel_reports(message, retain, at_ms), *confirmed, *_decode_reading(kind, names[:-1], payload)]


def is_command_subscription(topic_filter: str) -> bool:
    return topic_filter in ("switch/+/command", "#") or _COMMAND_FILTER.fullmatch(topic_filter) is not None


def state_queries() -> Sequence[OutboundMessage]:
    return ()  # its states are retained, so the broker sends them again


def encode_plan(device_id: str, revision: int, rows: Sequence[PlanRow], now_ms: int) -> Sequence[OutboundMessage]:
    return ()  # its schedules are part of its YAML


def _decode_presence(word: str) -> Sequence[DeviceReport]:
    if word in ("online", "offline"):
        return (PresenceReport(word == "online"),)
    return (UnreadableMessage("MALFORMED", "status is `online` or `offline`"),)


def _decode_answer(word: str) -> Sequence[DeviceReport]:
    """`exe_… ON`, `exe_… pump ON`: the id of the command after which it was asked, and what the switch does."""
    request, _, state = word.rpartition(" ")
    if not request or state not in ("ON", "OFF"):
        return (UnreadableMessage("MALFORMED", "an answer is an id and ON or OFF", metric="relay"),)
    return (CommandResultReport(request.partition(" ")[0][:64], "done", relay=state == "ON"),)


def _decode_reading(kind: str, names: Sequence[str], payload: bytes) -> Sequence[DeviceReport]:
    """`fan/ceiling/speed_level/state` is the metric `fan.ceiling.speed_level`; a light's or an event's JSON is flattened. `nan`
    means that a sensor has no value yet."""
    name = ".".join(names if kind in _BARE else (kind, *names))
    if kind == "sensor" and not conversion.is_number(payload):
        return (UnreadableMessage("MALFORMED", "a sensor is a number", metric=name[:64]),)
    return conversion.read_plain(name, payload, is_text=kind in _TEXTS)
