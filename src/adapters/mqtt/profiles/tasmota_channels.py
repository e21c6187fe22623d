"""The channels of a Tasmota board, in its words.

`POWER3` is channel 3. What belongs to a relay has the relay's channel: a light's `Dimmer` that of the `POWER` before it in the
document, a shutter that of its first relay; the relays of a shutter are no channels of their own. Buttons and detached switches
have no number (`Button1`, `Switch2`).

A board does not say by itself which of its relays move a shutter, and such a relay must not be switched as if it were a lamp. So
a board whose state has more than one relay, or a light, is asked, and nothing is declared before it has answered: `Status` (the
names), `Status 3` (SetOption80: whether it has shutters), and `Status 13` (their relays) if it has.
"""

from __future__ import annotations

import colorsys
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from adapters.mqtt.profiles.conversion import color_word, is_quantity, read_params, to_kelvin, to_mired, to_percent
from domain.devices.channels import MAX_CHANNEL_NAME, RELAY_CHANNEL, ChannelKind, ChannelState, DeclaredChannel, InputAction
from domain.devices.messages import (
    ChannelReport,
    ChannelsReport,
    DeviceReport,
    OutboundCommand,
    OutboundMessage,
    RelayReport,
    StateQuestion,
)

POWER = re.compile(r"POWER(\d{0,2})")
_LEVEL = re.compile(r"Dimmer\d{0,2}|Channel\d{1,2}")
_SHUTTER = re.compile(r"Shutter(\d{1,2})")
_INPUT = re.compile(r"(?:Button|Switch)\d{1,2}")
_GIVEN_BY_FIRMWARE = re.compile(r"(?:Tasmota|Sonoff)\d{0,2}", re.IGNORECASE)
"""Names that nobody has chosen."""
_ACTIONS = {
    "SINGLE": InputAction.SINGLE,
    "DOUBLE": InputAction.DOUBLE,
    "TRIPLE": InputAction.TRIPLE,
    "HOLD": InputAction.LONG,
    "TOGGLE": InputAction.SINGLE,
    "ON": InputAction.ON,
    "OFF": InputAction.OFF,
}
_DIRECTIONS = {1: "OPENING", -1: "CLOSING"}
_COVER_STEPS = {"OPEN": "ShutterOpen", "CLOSE": "ShutterClose", "STOP": "ShutterStop"}
_SHUTTER_MODE_BIT = 30
"""SetOption80 in the third word of `Status 3`, which has the options from 50 on."""
_FASTEST, _SLOWEST = 1, 40
"""Tasmota's speeds of a fade, in half seconds."""
_MAX_INPUTS = 32
_NAMES, _OPTIONS, _SHUTTERS = "STATUS", "STATUS3", "STATUS13"
"""Answers."""
_QUESTIONS = {
    _NAMES: OutboundMessage("cmnd/STATUS", b""),
    _OPTIONS: OutboundMessage("cmnd/STATUS", b"3"),
    _SHUTTERS: OutboundMessage("cmnd/STATUS", b"13"),
}
_POSITIONS = OutboundMessage("cmnd/STATUS", b"10")
_QUESTION_PAUSE_MS = 60_000
_ONE_RELAY = (DeclaredChannel(RELAY_CHANNEL, ChannelKind.RELAY, None, "POWER1"),)


@dataclass(slots=True)
class BoardLayout:
    """What a board has said of its channels since the service has started."""

    names: list[str] | None = None
    relays: dict[int, bool] = field(default_factory=dict)
    lights: dict[int, tuple[str, ChannelKind]] = field(default_factory=dict)
    """By channel: what sets the level, and whether it has a colour."""
    shutters: dict[str, tuple[int, ...]] | None = None
    """Their relays; None: not known."""
    inputs: dict[str, None] = field(default_factory=dict)
    declared: tuple[DeclaredChannel, ...] = ()
    awaited: set[str] | None = None
    """The answers still to come; None: it has not been asked since it connected."""
    queried_ms: int = 0

    def forget(self) -> None:
        """It has connected again, perhaps as another board. Its shutters are believed until it says something else."""
        self.relays.clear()
        self.lights.clear()
        self.awaited = None

    def is_expected(self, answer: str) -> bool:
        return answer in (self.awaited or ())

    def queries(self, document: Mapping[str, Any], at_ms: int) -> list[DeviceReport]:
        """The questions, if this is the state of a board with more than one relay or with a light. One that is lost is asked
        again."""
        if not any(name in document for name in ("POWER2", "Dimmer", "Dimmer1", "Channel1")) or "Uptime" not in document:
            return []
        if self.awaited is None:
            self.awaited = {_NAMES, _OPTIONS}
        elif at_ms - self.queried_ms < _QUESTION_PAUSE_MS:
            return []
        self.queried_ms = at_ms
        return [StateQuestion(_QUESTIONS[answer]) for answer in sorted(self.awaited)]

    def moves_shutter(self, channel: int) -> bool:
        return any(channel in relays for relays in (self.shutters or {}).values())

    def declare(self) -> list[DeviceReport]:
        """The channels, if they are known and others than before, and then the states. Channels that were there before, such as
        those of another template, are gone. A board with one relay names none."""
        if self.awaited is None or self.awaited or self.names is None or self.shutters is None:
            return []
        channels = tuple(
            sorted(self._channels(), key=lambda each: (each.channel is None, each.channel or 0, each.component or ""))
        )
        if channels == (self.declared or _ONE_RELAY):
            return []
        has_lost_some = bool({each.component for each in self.declared} - {each.component for each in channels})
        self.declared = channels
        states = [RelayReport(on, channel=number) for number, on in self.relays.items() if not self.moves_shutter(number)]
        return [ChannelsReport(channels, is_complete=has_lost_some), *states]

    def _channels(self) -> Iterator[DeclaredChannel]:
        is_alone = len(self.relays) == 1
        for number in self.relays:
            if not self.moves_shutter(number):
                component, kind = self.lights.get(number, (f"POWER{number}", ChannelKind.RELAY))
                name = None if is_alone and kind is ChannelKind.RELAY else self._name(number)
                yield DeclaredChannel(number, kind, name, component)
        for component, relays in (self.shutters or {}).items():
            yield DeclaredChannel(relays[0], ChannelKind.COVER, self._name(relays[0]), component)
        for component in self.inputs:
            yield DeclaredChannel(None, ChannelKind.INPUT, None, component)

    def _name(self, channel: int) -> str | None:
        names = self.names or []
        name = names[channel - 1].strip()[:MAX_CHANNEL_NAME] if channel <= len(names) else ""
        return None if not name or _GIVEN_BY_FIRMWARE.fullmatch(name) else name

    def add_input(self, component: str) -> list[DeviceReport]:
        if len(self.inputs) < _MAX_INPUTS:
            self.inputs[component] = None
        return [ChannelsReport((DeclaredChannel(None, ChannelKind.INPUT, None, component),), is_complete=False)]

    def learn_status(self, name: str, document: Mapping[str, Any]) -> list[DeviceReport]:
        """Of `Status`, `Status 3` and `Status 13`."""
        reports: list[DeviceReport] = []
        if self.awaited is not None:
            self.awaited.discard(name)
        names, options = _part(document, "Status").get("FriendlyName"), _part(document, "StatusLOG").get("SetOption")
        if isinstance(names, list):
            self.names = [each if isinstance(each, str) else "" for each in names]
        if isinstance(options, list) and not _has_shutters(options):
            self.shutters = {}
        elif isinstance(options, list) and self.awaited is not None:
            self.awaited.add(_SHUTTERS)
            reports.append(StateQuestion(_QUESTIONS[_SHUTTERS]))
        if "StatusSHT" in document:
            self.shutters = dict(_read_shutter_relays(_part(document, "StatusSHT")))
            reports.append(StateQuestion(_POSITIONS))
        return [*self.declare(), *reports]


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = document.get(name)
    return part if isinstance(part, dict) else {}


def _has_shutters(options: list[Any]) -> bool:
    try:
        return bool(int(options[2], 16) >> _SHUTTER_MODE_BIT & 1)
    except (IndexError, TypeError, ValueError):
        return False


def _read_shutter_relays(status: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """`{"SHT0": {"Relay1": 1, "Relay2": 2, …}}` is `Shutter1`."""
    for name, each in status.items():
        number = name.removeprefix("SHT")
        relays = [each.get(key) for key in ("Relay1", "Relay2")] if isinstance(each, dict) else []
        used = tuple(relay for relay in relays if type(relay) is int and 1 <= relay <= 32)
        if number.isdigit() and len(number) <= 2 and used:
            yield f"Shutter{int(number) + 1}", used


def read_channels(document: Mapping[str, Any], layout: BoardLayout | None) -> list[DeviceReport]:
    """Levels, colours and positions. A level that stands without its `POWER` is known by its component."""
    reports: list[DeviceReport] = []
    channel, first = None, None
    has_color = "HSBColor" in document or "CT" in document
    for name, value in document.items():
        if (power := POWER.fullmatch(name)) is not None:
            channel = int(power[1] or RELAY_CHANNEL)
        elif _LEVEL.fullmatch(name) and (level := to_percent(value)) is not None:
            details = _read_color(document) if has_color and first is None else {}
            first = first or name
            if layout is not None and channel is not None:
                layout.lights[channel] = (name, ChannelKind.COLOR if details else ChannelKind.LEVEL)
            reports.append(ChannelReport(name, ChannelState(level=level, details=details)))
        elif _SHUTTER.fullmatch(name) and isinstance(value, dict) and "Position" in value:
            direction = value.get("Direction")
            moving = _DIRECTIONS.get(direction) if isinstance(direction, int) else None
            reports.append(ChannelReport(name, ChannelState(level=to_percent(value["Position"]), details={"moving": moving})))
    return reports


def _read_color(document: Mapping[str, Any]) -> dict[str, Any]:
    """The colour without its brightness, which is the level. `White` above 0 or a bulb without colours: white, of `CT` mired."""
    hue = _hue(document.get("HSBColor"))
    mired, white = document.get("CT"), document.get("White")
    if is_quantity(mired) and (hue is None or (is_quantity(white) and white > 0)):
        return {"color": None, "kelvin": to_kelvin(mired)}
    return {"color": None if hue is None else color_word(*colorsys.hsv_to_rgb(*hue, 255)), "kelvin": None}


def _hue(word: Any) -> tuple[float, float] | None:
    """`32,100,60`: degrees, and percent of saturation and brightness."""
    parts = word.split(",") if isinstance(word, str) else []
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) <= 3 for part in parts):
        return None
    return int(parts[0]) % 360 / 360, min(100, int(parts[1])) / 100


def find_actions(document: Mapping[str, Any]) -> Iterator[tuple[str, InputAction]]:
    """`{"Button1": {"Action": "DOUBLE"}}` (SetOption73), `{"Switch1": {"Action": "ON"}}` (SetOption114). Other words, such as the
    release after a hold, are readings only."""
    for name, value in document.items():
        if _INPUT.fullmatch(name) and isinstance(value, dict) and isinstance(value.get("Action"), str):
            action = _ACTIONS.get(value["Action"].upper())
            if action is not None:
                yield name, action


def command_steps(command: OutboundCommand) -> list[str] | None:
    """Tasmota's commands; None if a channel of this kind has no such command."""
    if command.cmd == "STATUS":
        return ["State"]
    if command.kind.is_switched and command.cmd in ("ON", "OFF", "TOGGLE"):
        return [f"Power{command.channel} {command.cmd}"]
    if command.kind is ChannelKind.COVER:
        return _cover_steps(command)
    if command.kind in (ChannelKind.LEVEL, ChannelKind.COLOR):
        return _light_steps(command)
    return None


def _cover_steps(command: OutboundCommand) -> list[str] | None:
    shutter = _SHUTTER.fullmatch(command.component or "")
    number = int(shutter[1]) if shutter is not None else (command.channel + 1) // 2
    if command.cmd == "SET_POSITION" and (position := read_params(command).position) is not None:
        return [f"ShutterPosition{number} {position}"]
    return [f"{_COVER_STEPS[command.cmd]}{number}"] if command.cmd in _COVER_STEPS else None


def _light_steps(command: OutboundCommand) -> list[str] | None:
    params = read_params(command)
    component = command.component or ""
    setter = component if _LEVEL.fullmatch(component) else "Dimmer"
    level = [] if params.level is None else [f"{setter} {params.level}"]
    if command.cmd == "SET_LEVEL" and level:
        speed = 0 if params.seconds is None else round(params.seconds * 2)
        return [*([f"Speed2 {min(_SLOWEST, max(_FASTEST, speed))}"] if speed else []), *level]
    if command.cmd != "SET_COLOR" or command.kind is not ChannelKind.COLOR:
        return None
    if params.color is not None:
        return [f"Color2 {params.color[1:].upper()}", *level]
    return None if params.kelvin is None else [f"CT {to_mired(params.kelvin)}", *level]
