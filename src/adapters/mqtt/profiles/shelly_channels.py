"""The channels of a Shelly of the second to fourth generation, in its words: components such as `switch:1` or `cover:0`.

The component with the number n has channel n + 1; if a device has several kinds (`rgb:0` and `cct:0`), the first kind has it. The
others, thermostats and inputs have no number of their own. What is said of `switch:0` is said of channel 1, whatever else is
known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from adapters.mqtt.profiles.conversion import ChannelParams, color_word, is_quantity, read_params, to_celsius, to_percent
from domain.devices.channels import (
    MAX_CHANNEL,
    MAX_CHANNEL_NAME,
    RELAY_CHANNEL,
    ChannelKind,
    ChannelState,
    DeclaredChannel,
    InputAction,
)
from domain.devices.messages import ChannelReference, ChannelReport, DeviceReport, InputReport, OutboundCommand

RpcCall: TypeAlias = tuple[str, dict[str, Any]]
"""Method and parameters."""

RELAY = "switch:0"
_NAMES = {
    "switch": "Switch",
    "cover": "Cover",
    "light": "Light",
    "rgb": "RGB",
    "rgbw": "RGBW",
    "cct": "CCT",
    "thermostat": "Thermostat",
    "input": "Input",
    "blutrv": "BluTRV",
}
"""By type of component, the first part of its methods; earlier types have the number of the channel before later ones."""
_KINDS = {
    "switch": ChannelKind.RELAY,
    "cover": ChannelKind.COVER,
    "light": ChannelKind.LEVEL,
    "rgb": ChannelKind.COLOR,
    "rgbw": ChannelKind.COLOR,
    "cct": ChannelKind.COLOR,
    "thermostat": ChannelKind.CLIMATE,
    "input": ChannelKind.INPUT,
    "blutrv": ChannelKind.CLIMATE,
}
_TYPES = {
    ChannelKind.RELAY: "switch",
    ChannelKind.COVER: "cover",
    ChannelKind.LEVEL: "light",
    ChannelKind.COLOR: "rgbw",
    ChannelKind.CLIMATE: "thermostat",
    ChannelKind.INPUT: "input",
}
"""For a channel that a person has described."""
_UNNUMBERED = (ChannelKind.CLIMATE, ChannelKind.INPUT)
_COMPONENT = re.compile(r"([a-z][a-z0-9]*):(\d{1,3})")
PUSHES = {
    "single_push": InputAction.SINGLE,
    "double_push": InputAction.DOUBLE,
    "triple_push": InputAction.TRIPLE,
    "long_push": InputAction.LONG,
}
MAX_KELVIN = 100_000
_MOVES = {"opening": "OPENING", "closing": "CLOSING"}
_ENDS = {"open": 100, "closed": 0}


def reference(component: str) -> ChannelReference:
    """Switches are known by their number."""
    kind, number = split_component(component)
    return number + 1 if kind == "switch" and number < MAX_CHANNEL else component


def split_component(component: str) -> tuple[str, int]:
    """(`switch`, 1) of `switch:1`; a component without a number is a type of its own."""
    found = _COMPONENT.fullmatch(component)
    return (component, 0) if found is None else (found[1], int(found[2]))


def declared_channels(components: Mapping[str, Any], names: Mapping[str, str]) -> tuple[DeclaredChannel, ...]:
    """Of a whole status. An input that counts or measures is no input of this kind; its readings say all."""
    order = list(_KINDS)
    found = [
        (order.index(kind), number, name) for name in components for kind, number in [split_component(name)] if kind in _KINDS
    ]
    used: set[int] = set()
    declared = []
    for place, number, component in sorted(found):
        kind, channel = _KINDS[order[place]], number + 1
        status = components[component]
        if kind is ChannelKind.INPUT and not (isinstance(status, dict) and "state" in status):
            continue
        is_numbered = kind not in _UNNUMBERED and channel <= MAX_CHANNEL and channel not in used
        used |= {channel} if is_numbered else set()
        declared.append(DeclaredChannel(channel if is_numbered else None, kind, names.get(component), component))
    return tuple(declared)


def component_names(config: Mapping[str, Any]) -> dict[str, str]:
    """What a person has named, of a whole configuration."""
    named = {component: part.get("name") for component, part in config.items() if isinstance(part, dict)}
    return {
        component: name.strip()[:MAX_CHANNEL_NAME]
        for component, name in named.items()
        if split_component(component)[0] in _KINDS and isinstance(name, str) and name.strip()
    }


def read_state(component: str, status: Mapping[str, Any]) -> list[DeviceReport]:
    """What a status, which may be partial, says of a channel beside whether it is on."""
    read = _READERS.get(split_component(component)[0])
    return [] if read is None else list(read(component, status))


def _read_light(component: str, status: Mapping[str, Any]) -> Iterable[DeviceReport]:
    details: dict[str, Any] = {}
    rgb, kelvin = status.get("rgb"), status.get("ct")
    if isinstance(rgb, list) and len(rgb) == 3 and all(is_quantity(part) for part in rgb):
        details["color"] = color_word(*rgb)
    if is_quantity(kelvin) and 0 < kelvin < MAX_KELVIN:
        details["kelvin"] = round(kelvin)
    level = to_percent(status.get("brightness"))
    return [ChannelReport(component, ChannelState(level=level, details=details))] if details or level is not None else []


def _read_cover(component: str, status: Mapping[str, Any]) -> Iterable[DeviceReport]:
    """A cover that is not calibrated knows its ends only."""
    word, position = status.get("state"), to_percent(status.get("current_pos"))
    if not isinstance(word, str):
        return [] if position is None else [ChannelReport(component, ChannelState(level=position))]
    level = _ENDS.get(word) if position is None else position
    return [ChannelReport(component, ChannelState(level=level, details={"moving": _MOVES.get(word)}))]


def _read_climate(component: str, status: Mapping[str, Any]) -> Iterable[DeviceReport]:
    details: dict[str, Any] = {}
    if (target := to_celsius(status.get("target_C"))) is not None:
        details["targetCelsius"] = target
    if isinstance(status.get("enable"), bool):
        details["mode"] = "HEAT" if status["enable"] else "OFF"
    if isinstance(status.get("output"), bool):
        details["action"] = "HEATING" if status["output"] else "IDLE"
    return [ChannelReport(component, ChannelState(details=details))] if details else []


def _read_input(component: str, status: Mapping[str, Any]) -> Iterable[DeviceReport]:
    """A button's state is null."""
    state = status.get("state")
    return [InputReport(component, InputAction.ON if state else InputAction.OFF)] if isinstance(state, bool) else []


_READERS: Mapping[str, Callable[[str, Mapping[str, Any]], Iterable[DeviceReport]]] = {
    "cover": _read_cover,
    "light": _read_light,
    "rgb": _read_light,
    "rgbw": _read_light,
    "cct": _read_light,
    "thermostat": _read_climate,
    "blutrv": _read_climate,
    "input": _read_input,
}


def is_channel(component: str) -> bool:
    return split_component(component)[0] in _KINDS


def has_output(component: str) -> bool:
    """Whether `output` of its status means that the channel is on."""
    kind = split_component(component)[0]
    return kind in _KINDS and _KINDS[kind].is_switched


def status_call(component: str) -> RpcCall:
    kind, number = split_component(component)
    return f"{_NAMES.get(kind, 'Switch')}.GetStatus", {"id": number}


def component_of(command: OutboundCommand) -> str:
    kind = split_component(command.component or "")[0]
    if command.component is not None and _KINDS.get(kind) is command.kind:
        return command.component
    return f"{_TYPES[command.kind]}:{command.channel - RELAY_CHANNEL}"


def command_call(command: OutboundCommand) -> RpcCall | None:
    """The RPC call; None if a channel of this kind has no such command."""
    component = component_of(command)
    kind, number = split_component(component)
    target, params = {"id": number}, read_params(command)
    if command.cmd == "STATUS":
        return status_call(component)
    if command.cmd == "GET_SCHEDULES":
        return "Schedule.List", {}
    if command.kind.is_switched and command.cmd in ("ON", "OFF"):
        return f"{_NAMES[kind]}.Set", target | {"on": command.cmd == "ON"}
    if command.kind.is_switched and command.cmd == "TOGGLE":
        return f"{_NAMES[kind]}.Toggle", target
    if command.kind is ChannelKind.COVER:
        return _cover_call(command.cmd, target, params)
    if command.kind is ChannelKind.CLIMATE:
        return _climate_call(kind, command.cmd, target, params)
    return _light_call(kind, command, target, params)


def _cover_call(cmd: str, target: dict[str, Any], params: ChannelParams) -> RpcCall | None:
    if cmd in ("OPEN", "CLOSE", "STOP"):
        return f"Cover.{cmd.capitalize()}", target
    if cmd != "SET_POSITION" or params.position is None:
        return None
    return "Cover.GoToPosition", target | {"pos": params.position}


def _climate_call(kind: str, cmd: str, target: dict[str, Any], params: ChannelParams) -> RpcCall | None:
    if kind == "blutrv":
        if cmd != "SET_TARGET" or params.celsius is None:
            return None
        return "BluTRV.Call", target | {"method": "TRV.SetTarget", "params": {"id": 0, "target_C": params.celsius}}
    if cmd == "SET_TARGET" and params.celsius is not None:
        return "Thermostat.SetConfig", target | {"config": {"target_C": params.celsius}}
    if cmd != "SET_MODE" or params.mode not in ("OFF", "HEAT"):
        return None
    return "Thermostat.SetConfig", target | {"config": {"enable": params.mode == "HEAT"}}


def _light_call(kind: str, command: OutboundCommand, target: dict[str, Any], params: ChannelParams) -> RpcCall | None:
    """Level 0 is off: Shelly's brightness begins with 1."""
    wanted: dict[str, Any] = {"on": params.level != 0}
    if params.level:
        wanted["brightness"] = params.level
    if params.seconds is not None:
        wanted["transition_duration"] = params.seconds
    if command.cmd == "SET_LEVEL" and params.level is not None and kind in ("light", "rgb", "rgbw", "cct"):
        return f"{_NAMES[kind]}.Set", target | wanted
    if command.cmd != "SET_COLOR":
        return None
    if params.rgb is not None and kind in ("rgb", "rgbw"):
        return f"{_NAMES[kind]}.Set", target | wanted | {"rgb": list(params.rgb)}
    return ("CCT.Set", target | wanted | {"ct": params.kelvin}) if params.kelvin is not None and kind == "cct" else None
