"""The channels of an ESPHome board, in its words: components with topics of their own, such as `light/lamp`.

ESPHome has no numbers and no list of its components, so each one names itself with the first state that it publishes. The name is
that of the topic, which ESPHome makes of the name in the YAML.

Only switches are asked what they do after a command. Everything else publishes its state after each command, so a command is done
when the first state arrives that it wanted. For a cover this is that it moves as told, or is there.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from adapters.mqtt.profiles.conversion import (
    ChannelParams,
    color_word,
    is_quantity,
    press_reports,
    read_params,
    to_celsius,
    to_kelvin,
    to_mired,
    to_percent,
)
from domain.devices.channels import MAX_CHANNEL_NAME, ChannelKind, ChannelState, DeclaredChannel, InputAction
from domain.devices.messages import ChannelReport, ChannelsReport, CommandResultReport, DeviceReport, OutboundCommand, RelayReport

COMMANDED = ("switch", "light", "fan", "cover", "valve", "climate")
_SWITCH_WORDS = {"ON": True, "OFF": False}
_MOVES = {"opening": "OPENING", "closing": "CLOSING"}
_WANTED_MOVES = {"OPEN": ("open", "opening"), "CLOSE": ("closed", "closing"), "STOP": ("open", "closed", "unknown")}
_MODES = {"off": "OFF", "heat": "HEAT", "cool": "COOL", "heat_cool": "AUTO", "auto": "AUTO", "dry": "DRY", "fan_only": "FAN_ONLY"}
_MODE_WORDS = {word: name for name, word in _MODES.items() if name != "auto"}
"""`heat_cool`, because more firmware has it than `auto`."""
_PRESSES = {
    "press": InputAction.SINGLE,
    "single": InputAction.SINGLE,
    "single_press": InputAction.SINGLE,
    "click": InputAction.SINGLE,
    "single_click": InputAction.SINGLE,
    "double": InputAction.DOUBLE,
    "double_press": InputAction.DOUBLE,
    "double_click": InputAction.DOUBLE,
    "triple": InputAction.TRIPLE,
    "triple_press": InputAction.TRIPLE,
    "triple_click": InputAction.TRIPLE,
    "long": InputAction.LONG,
    "long_press": InputAction.LONG,
    "hold": InputAction.LONG,
}
"""Types of events; a person chooses them, so these are the usual ones."""
_FULL = 255
_STEP_CELSIUS, _STEP_COLOR = 0.5, 2
"""A value that is set may come back rounded."""
MAX_SENT = 64

_decode_json = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class UnconfirmedCommand:
    component: str
    cmd: str
    params: ChannelParams
    expires_ms: int


@dataclass(slots=True)
class EspHomeState:
    """By execution id, oldest first, the commands that a state has to confirm."""

    sent: OrderedDict[str, UnconfirmedCommand] = field(default_factory=OrderedDict)

    def remember(self, command: OutboundCommand, component: str) -> None:
        self.sent.pop(command.execution_id, None)
        while len(self.sent) >= MAX_SENT:
            self.sent.popitem(last=False)
        self.sent[command.execution_id] = UnconfirmedCommand(component, command.cmd, read_params(command), command.expires_ms)

    def confirmed(self, message: ComponentState, at_ms: int) -> list[DeviceReport]:
        done = [
            execution_id
            for execution_id, each in self.sent.items()
            if each.component == message.component and at_ms < each.expires_ms and _is_wanted(each, message)
        ]
        for execution_id in done:
            del self.sent[execution_id]
        return [CommandResultReport(execution_id, "done", relay=message.on) for execution_id in done]


@dataclass(frozen=True, slots=True)
class ComponentState:
    """One message: `cover/blind`, `position`, `55`. `aspect` is empty for the state itself; a light's JSON is its `document`."""

    component: str
    aspect: str
    word: str
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return self.component.partition("/")[0]

    @property
    def number(self) -> float | None:
        try:
            number = float(self.word) if len(self.word) <= 16 else math.nan
        except ValueError:
            return None
        return number if math.isfinite(number) else None

    @property
    def on(self) -> bool | None:
        if self.aspect or self.kind not in ("switch", "light", "fan"):
            return None
        word = self.document.get("state") if self.kind == "light" else self.word
        return _SWITCH_WORDS.get(word) if isinstance(word, str) else None

    @property
    def level(self) -> int | None:
        return to_percent(self.document.get("brightness"), _FULL)

    @property
    def rgb(self) -> list[float]:
        """Three parts from 0 to 255; empty for a light that shows no colour."""
        color = self.document.get("color")
        parts = [color.get(name) for name in "rgb"] if isinstance(color, dict) else []
        known = [part for part in parts if is_quantity(part)]
        return known if len(known) == 3 else []


def read_words(component: str, aspect: str, payload: bytes) -> ComponentState:
    word = payload.strip().decode("utf-8", "replace")
    document = _decode_json(payload) if component.startswith(("light/", "event/")) and word[:1] == "{" else {}
    return ComponentState(component, aspect, word, document if isinstance(document, dict) else {})


def channel_reports(message: ComponentState, retain: bool, at_ms: int) -> list[DeviceReport]:
    """The channel, and what it does."""
    if len(message.component) > MAX_CHANNEL_NAME or not (read := _READERS.get(message.kind)):
        return []
    kind, reports = read(message, retain, at_ms)
    if kind is None:
        return list(reports)
    name = message.component.partition("/")[2].replace("_", " ")
    return [ChannelsReport((DeclaredChannel(None, kind, name, message.component),), is_complete=False), *reports]


_Read = tuple[ChannelKind | None, Iterable[DeviceReport]]
"""The kind, if the message tells it, and what the channel does."""


def _on_reports(message: ComponentState) -> list[DeviceReport]:
    return [] if message.on is None else [RelayReport(message.on, channel=message.component)]


def _read_switch(message: ComponentState, retain: bool, at_ms: int) -> _Read:
    return (ChannelKind.RELAY, _on_reports(message)) if message.on is not None else (None, ())


def _read_light(message: ComponentState, retain: bool, at_ms: int) -> _Read:
    mode, mired = message.document.get("color_mode"), message.document.get("color_temp")
    details: dict[str, Any] = {}
    if message.rgb:
        details = {"color": color_word(*message.rgb), "kelvin": None}
    elif is_quantity(mired):
        details = {"color": None, "kelvin": to_kelvin(mired)}
    kind = ChannelKind.COLOR if details else None
    if isinstance(mode, str):
        kind = {"onoff": ChannelKind.RELAY, "brightness": ChannelKind.LEVEL}.get(mode, ChannelKind.COLOR)
    elif kind is None and message.level is not None:
        kind = ChannelKind.LEVEL
    state = ChannelState(level=message.level, details=details)
    levels = [] if state == ChannelState() else [ChannelReport(message.component, state)]
    return kind, [*_on_reports(message), *levels]


def _read_fan(message: ComponentState, retain: bool, at_ms: int) -> _Read:
    if message.aspect == "speed_level" and (level := to_percent(message.number)) is not None:
        return ChannelKind.LEVEL, [ChannelReport(message.component, ChannelState(level=level))]
    return (ChannelKind.LEVEL, _on_reports(message)) if message.on is not None else (None, ())


def _read_cover(message: ComponentState, retain: bool, at_ms: int) -> _Read:
    """`open` is said of each position but 0."""
    if message.aspect == "position" and (level := to_percent(message.number)) is not None:
        return ChannelKind.COVER, [ChannelReport(message.component, ChannelState(level=level))]
    if message.aspect or message.word not in ("open", "closed", "opening", "closing", "unknown"):
        return None, ()
    state = ChannelState(level=0 if message.word == "closed" else None, details={"moving": _MOVES.get(message.word)})
    return ChannelKind.COVER, [ChannelReport(message.component, state)]


def _read_climate(message: ComponentState, retain: bool, at_ms: int) -> _Read:
    details: dict[str, Any] = {}
    if message.aspect == "target_temperature" and (target := to_celsius(message.number)) is not None:
        details["targetCelsius"] = target
    elif message.aspect == "mode" and message.word in _MODES:
        details["mode"] = _MODES[message.word]
    elif message.aspect == "action" and message.word.replace("_", "").isalpha():
        details["action"] = message.word.upper()[:MAX_CHANNEL_NAME]
    return (ChannelKind.CLIMATE, [ChannelReport(message.component, ChannelState(details=details))]) if details else (None, ())


def _read_event(message: ComponentState, retain: bool, at_ms: int) -> _Read:
    word = message.document.get("event_type")
    action = _PRESSES.get(word) if isinstance(word, str) else None
    if action is None:
        return None, ()
    return ChannelKind.INPUT, press_reports(message.component, message.component.replace("/", "."), action, retain, at_ms)


_READERS: Mapping[str, Callable[[ComponentState, bool, int], _Read]] = {
    "switch": _read_switch,
    "light": _read_light,
    "fan": _read_fan,
    "cover": _read_cover,
    "valve": _read_cover,
    "climate": _read_climate,
    "event": _read_event,
}


def _is_wanted(sent: UnconfirmedCommand, message: ComponentState) -> bool:
    params = sent.params
    match sent.cmd:
        case "SET_LEVEL" if message.kind == "fan" and params.level:
            return message.aspect == "speed_level" and message.number == params.level
        case "SET_COLOR" if params.rgb is not None and not _is_near(message.rgb, params.rgb):
            return False
        case "SET_LEVEL" | "SET_COLOR":
            if message.on is None or params.level is None or params.level == 0:
                return message.on is (params.level != 0)
            return message.on and message.level is not None and abs(message.level - params.level) <= 1
        case "SET_POSITION":
            return (
                message.number == params.position
                if message.aspect == "position"
                else message.word in _MOVES and not message.aspect
            )
        case "SET_TARGET":
            is_target = message.aspect == "target_temperature" and message.number is not None and params.celsius is not None
            return is_target and abs((message.number or 0) - (params.celsius or 0)) <= _STEP_CELSIUS
        case "SET_MODE":
            return message.aspect == "mode" and _MODES.get(message.word) == params.mode
        case _:
            return not message.aspect and message.word in _WANTED_MOVES.get(sent.cmd, ())


def _is_near(message: Sequence[float], wanted: Sequence[float]) -> bool:
    return len(message) == len(wanted) and all(
        abs(one - other) <= _STEP_COLOR for one, other in zip(message, wanted, strict=True)
    )


def command_messages(command: OutboundCommand, component: str) -> Sequence[tuple[str, bytes]]:
    """(topic, payload); none if this component has no such command."""
    kind = component.partition("/")[0]
    params, topic = read_params(command), f"{component}/command"
    if kind == "light":
        document = _light_document(command, params)
        return [] if document is None else [(topic, _encode_json(document))]
    if command.cmd in ("ON", "OFF", "TOGGLE"):
        return [(topic, command.cmd.encode())] if kind in ("switch", "fan") else []
    if kind == "fan" and command.cmd == "SET_LEVEL" and params.level is not None:
        speed = (f"{component}/speed_level/command", str(params.level).encode())
        return [(topic, b"ON"), speed] if params.level else [(topic, b"OFF")]
    if kind in ("cover", "valve") and command.cmd in _WANTED_MOVES:
        return [(topic, command.cmd.encode())]
    if kind in ("cover", "valve") and command.cmd == "SET_POSITION" and params.position is not None:
        return [(f"{component}/position/command", str(params.position).encode())]
    if kind == "climate" and command.cmd == "SET_TARGET" and params.celsius is not None:
        return [(f"{component}/target_temperature/command", f"{params.celsius:g}".encode())]
    if kind == "climate" and command.cmd == "SET_MODE" and params.mode in _MODE_WORDS:
        return [(f"{component}/mode/command", _MODE_WORDS[params.mode].encode())]
    return []


def _light_document(command: OutboundCommand, params: ChannelParams) -> dict[str, Any] | None:
    """The brightness has 1 to 255, and the transition whole seconds, as ESPHome reads them."""
    if command.cmd in ("ON", "OFF", "TOGGLE"):
        return {"state": command.cmd}
    document: dict[str, Any] = {"state": "OFF" if params.level == 0 else "ON"}
    if params.level:
        document["brightness"] = round(params.level * _FULL / 100)
    if params.seconds is not None:
        document["transition"] = round(params.seconds)
    if command.cmd == "SET_LEVEL":
        return document if params.level is not None else None
    if command.cmd != "SET_COLOR" or command.kind is not ChannelKind.COLOR:
        return None
    if params.rgb is not None:
        return document | {"color": dict(zip("rgb", params.rgb, strict=True))}
    return document | {"color_temp": to_mired(params.kelvin)} if params.kelvin is not None else None
