"""What each channel of a device is in Home Assistant: the entity by its kind, its states, and the commands that it sends.

Home Assistant sends all commands of an entity to one topic; the payload says which one it is. An INPUT is what it was last seen
to be: a contact, whose ON or OFF lasts, is a binary sensor; until then it is an event entity, which shows presses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from domain.commands.model import CLIMATE_MODES
from domain.devices.channels import Channel, ChannelKind, InputAction
from domain.devices.model import Device
from domain.kernel.domain_event import Json, JsonObject

PRESSES: Final = tuple(action.value for action in InputAction if not action.is_contact)
_COVER_WORDS = re.compile(r"\b(garage|gate|shutter|blind|curtain|awning|door|window|shade)s?\b")
_COVER_CLASS_BY_APP: Final = {"MOTOR": "shutter"}
_COVER_MOVES: Final = {"OPENING": "opening", "CLOSING": "closing"}
_DECIMAL = re.compile(r"-?\d{1,4}(\.\d{1,6})?")


@dataclass(frozen=True, slots=True)
class HomeAssistantChannelEntity:
    """`component`: of Home Assistant. `states`: by the option that names its topic; None while it is not known. `commands`: the
    options that name the command topic."""

    component: str
    states: Mapping[str, str | None]
    commands: Sequence[str] = ()
    config: Mapping[str, Json] = field(default_factory=dict)


def channel_entity(device: Device, channel: Channel) -> HomeAssistantChannelEntity:
    on = None if channel.state.on is None else "ON" if channel.state.on else "OFF"
    match channel.kind:
        case ChannelKind.RELAY:
            return HomeAssistantChannelEntity(
                "switch", {"state_topic": on}, ("command_topic",), {"payload_on": "ON", "payload_off": "OFF"}
            )
        case ChannelKind.LEVEL | ChannelKind.COLOR:
            return _light(channel, on)
        case ChannelKind.COVER:
            return _cover(device, channel)
        case ChannelKind.CLIMATE:
            return _climate(channel)
        case ChannelKind.INPUT:
            action = channel.shown_state
            if action in (InputAction.ON, InputAction.OFF):
                return HomeAssistantChannelEntity("binary_sensor", {"state_topic": str(action)})
            return HomeAssistantChannelEntity("event", {"state_topic": None}, config={"event_types": [*PRESSES]})


def _light(channel: Channel, on: str | None) -> HomeAssistantChannelEntity:
    is_color = channel.kind is ChannelKind.COLOR
    level, color, kelvin = channel.state.level, channel.state.details.get("color"), channel.state.details.get("kelvin")
    state: dict[str, Json] = {"state": on}
    if level is not None:
        state["brightness"] = level
    if is_color and isinstance(color, str):
        red, green, blue = bytes.fromhex(color.removeprefix("#"))
        state |= {"color_mode": "rgb", "color": {"r": red, "g": green, "b": blue}}
    elif is_color and kelvin is not None:
        state |= {"color_mode": "color_temp", "color_temp": kelvin}
    config: dict[str, Json] = {
        "schema": "json",
        "brightness": True,  # else Home Assistant dims a colour by darkening it
        "brightness_scale": 100,
        "supported_color_modes": ["color_temp", "rgb"] if is_color else ["brightness"],
        "flash": False,
        "transition": False,
    }
    if is_color:
        config["color_temp_kelvin"] = True
    shown = None if channel.shown_state is None else json.dumps(state, separators=(",", ":"))
    return HomeAssistantChannelEntity("light", {"state_topic": shown}, ("command_topic",), config)


def _cover(device: Device, channel: Channel) -> HomeAssistantChannelEntity:
    position, moving = channel.state.level, _COVER_MOVES.get(str(channel.state.details.get("moving")))
    at_rest = None if position is None else "open" if position else "closed"
    states = {"state_topic": moving or at_rest, "position_topic": None if position is None else str(position)}
    about = f"{channel.name} {device.app_type_other or ''} {device.app_type}".lower().replace("_", " ")
    found = _COVER_WORDS.search(about)
    device_class = found[1] if found else _COVER_CLASS_BY_APP.get(device.app_type)
    config: dict[str, Json] = {} if device_class is None else {"device_class": device_class}
    return HomeAssistantChannelEntity("cover", states, ("command_topic", "set_position_topic"), config)


def _climate(channel: Channel) -> HomeAssistantChannelEntity:
    target, mode = channel.state.details.get("targetCelsius"), channel.state.details.get("mode")
    states = {
        "temperature_state_topic": f"{target:.10g}" if isinstance(target, int | float) else None,
        "mode_state_topic": mode.lower() if isinstance(mode, str) else None,
    }
    config: dict[str, Json] = {"modes": [mode.lower() for mode in CLIMATE_MODES], "temperature_unit": "C", "temp_step": 0.5}
    return HomeAssistantChannelEntity("climate", states, ("mode_command_topic", "temperature_command_topic"), config)


def parse_channel_command(kind: ChannelKind, payload: str) -> tuple[str, JsonObject | None] | None:
    """The command and its parameters, which are still to be checked; None for what Home Assistant does not send."""
    match kind:
        case ChannelKind.RELAY:
            return (payload, None) if payload in ("ON", "OFF") else None
        case ChannelKind.LEVEL | ChannelKind.COLOR:
            return _parse_light(payload)
        case ChannelKind.COVER:
            if payload in ("OPEN", "CLOSE", "STOP"):
                return payload, None
            return None if (number := _parse_number(payload)) is None else ("SET_POSITION", {"position": number})
        case ChannelKind.CLIMATE:
            if payload.upper() in CLIMATE_MODES:
                return "SET_MODE", {"mode": payload.upper()}
            return None if (number := _parse_number(payload)) is None else ("SET_TARGET", {"celsius": number})
        case ChannelKind.INPUT:
            return None


def _parse_light(payload: str) -> tuple[str, JsonObject | None] | None:
    try:
        given: Any = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    level: JsonObject = {"level": given["brightness"]} if isinstance(given, dict) and "brightness" in given else {}
    match given:
        case {"state": "OFF"}:
            return "OFF", None
        case {"state": "ON", "color": {"r": int(red), "g": int(green), "b": int(blue)}}:
            if not all(0 <= part <= 255 for part in (red, green, blue)):
                return None
            return "SET_COLOR", {"color": f"#{red:02x}{green:02x}{blue:02x}", **level}
        case {"state": "ON", "color_temp": kelvin}:
            return "SET_COLOR", {"kelvin": kelvin, **level}
        case {"state": "ON"}:
            return ("SET_LEVEL", level) if level else ("ON", None)
        case _:
            return None


def _parse_number(payload: str) -> int | float | None:
    if not _DECIMAL.fullmatch(payload):
        return None
    number = float(payload)
    return int(number) if number.is_integer() else number
